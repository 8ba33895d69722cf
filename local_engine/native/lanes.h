// Vectors of 16 floats, however they are represented: the native decoder's basic operations.
#pragma once

// Arrays of vectors stay in registers only if every loop over them is unrolled, including the last one.
#define UNROLL _Pragma("GCC unroll 16")

#if defined(__AVX512VNNI__)
#include "lanes_avx512.h"
#elif defined(__AVX2__)
#include "lanes_avx2.h"
#else
#include "lanes_neon.h"
#endif

namespace {

constexpr long kLanes = 16;  // outputs per panel, and tokens per cache block

inline Floats exp(Floats x) {
    x = max(x, every(-87.0f));
    const Floats n = round(x * every(1.44269504f));
    Floats r = multiply_add(n, every(-0.693359375f), x);
    r = multiply_add(n, every(2.12194440e-4f), r);
    Floats p = every(1.9875691500e-4f);
    for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
        p = multiply_add(p, r, every(c));
    p = multiply_add(p, r * r, r + every(1.0f));
    return times_power_of_two(p, n);
}

}  // namespace
