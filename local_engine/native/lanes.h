// Vectors of 16 floats, shares of work and a barrier: what the native decoder's parts have in common. Needs AVX-512.
#pragma once
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>

// Arrays of vectors stay in registers only where every loop over them is unrolled, the last one included.
#define UNROLL _Pragma("GCC unroll 16")

namespace {

constexpr long kLanes = 16;  // outputs of a panel, and tokens of a cache block

struct Range {
    long begin, end;
};

inline Range share(long items, long thread, long threads) {
    return {items * thread / threads, items * (thread + 1) / threads};
}

inline __mmask16 first_lanes(long count) { return count >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << count) - 1); }

inline __m512 exp_ps(__m512 x) {
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

// Spins a little, since phases are microseconds long, then sleeps: on a busy machine who waits must not use up its turns.
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
            _mm_pause();
        }
        sleepers_.fetch_add(1);
        while (phase_.load() == phase) futex(FUTEX_WAIT_PRIVATE, phase);
        sleepers_.fetch_sub(1);
    }

  private:
    void futex(int operation, int value) { syscall(SYS_futex, &phase_, operation, value, nullptr, nullptr, 0); }

    const int count_;
    std::atomic<int> arrived_{0}, phase_{0}, sleepers_{0};
};

}  // namespace
