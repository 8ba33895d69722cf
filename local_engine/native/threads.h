// Division of work, and a barrier between its phases.
#pragma once
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace {

struct Range {
    long begin, end;
};

inline Range share(long items, long thread, long threads) {
    return {items * thread / threads, items * (thread + 1) / threads};
}

// Spins briefly, since phases take microseconds, then sleeps: on a busy machine waiting must not use up the time slice.
class Barrier {
  public:
    explicit Barrier(int count) : count_(count) {}
    void wait() {
        const int phase = phase_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
            arrived_.store(0, std::memory_order_relaxed);
            phase_.store(phase + 1);
            if (sleepers_.load() > 0) futex(FUTEX_WAKE_PRIVATE, count_);
            return;
        }
        for (int spins = 0; spins < 2000; ++spins) {
            if (phase_.load(std::memory_order_acquire) != phase) return;
            pause();
        }
        sleepers_.fetch_add(1);
        while (phase_.load() == phase) futex(FUTEX_WAIT_PRIVATE, phase);
        sleepers_.fetch_sub(1);
    }

  private:
    static void pause() {
#ifdef __aarch64__
        asm volatile("isb");
#else
        __builtin_ia32_pause();
#endif
    }
    void futex(int operation, int value) { syscall(SYS_futex, &phase_, operation, value, nullptr, nullptr, 0); }

    const int count_;
    std::atomic<int> arrived_{0}, phase_{0}, sleepers_{0};
};

}  // namespace
