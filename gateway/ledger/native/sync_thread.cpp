// A thread that syncs one file at a time. It is asked and answers through eventfds and never touches Python, so that
// it waits for no lock of the interpreter's, nor the interpreter for it.

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <new>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace {

constexpr int END = -1;

struct SyncThread {
    pthread_t thread;
    int asked;
    int bell;
    std::atomic<int> file;
    std::atomic<int> result;
};

bool add_one(int eventfd) {
    const std::uint64_t one = 1;
    ssize_t written;
    do {
        written = write(eventfd, &one, sizeof one);
    } while (written < 0 && errno == EINTR);
    return written == sizeof one;
}

bool take_all(int eventfd) {
    std::uint64_t count;
    ssize_t taken;
    do {
        taken = read(eventfd, &count, sizeof count);
    } while (taken < 0 && errno == EINTR);
    return taken == sizeof count;
}

void *serve(void *given) {
    auto *const self = static_cast<SyncThread *>(given);
    int file;
    while (take_all(self->asked) && (file = self->file) != END) {
        self->result = fdatasync(file) == 0 ? 0 : errno;
        add_one(self->bell);
    }
    return nullptr;
}

// Signals are for the interpreter's own threads.
int start_without_signals(SyncThread *self) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int refusal = pthread_create(&self->thread, nullptr, serve, self);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return refusal;
}

}  // namespace

extern "C" {

// Adds one to the eventfd `bell` when a sync has ended. Null where the system has no thread or descriptor left.
void *breakeven_sync_thread_new(int bell) {
    auto *const self = new (std::nothrow) SyncThread{};
    if (self == nullptr) return nullptr;
    self->bell = bell;
    self->asked = eventfd(0, EFD_CLOEXEC);
    if (self->asked >= 0 && start_without_signals(self) == 0) return self;
    if (self->asked >= 0) close(self->asked);
    delete self;
    return nullptr;
}

// Begins a sync; none may be under way. 0, or why it did not begin.
int breakeven_sync_thread_submit(void *given, int file) {
    auto *const self = static_cast<SyncThread *>(given);
    self->file = file;
    return add_one(self->asked) ? 0 : errno;
}

// What the sync came to: 0 or its error. -1 while it is under way.
int breakeven_sync_thread_take(void *given) {
    auto *const self = static_cast<SyncThread *>(given);
    return take_all(self->bell) ? self->result.load() : -1;
}

// Waits for a sync under way.
void breakeven_sync_thread_free(void *given) {
    auto *const self = static_cast<SyncThread *>(given);
    self->file = END;
    add_one(self->asked);
    pthread_join(self->thread, nullptr);
    close(self->asked);
    delete self;
}
}
