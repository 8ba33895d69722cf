// 16 floats in one AVX-512 register, and integer products by VNNI.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

using Floats = __m512;
using Ints = __m512i;
using Bytes = __m512i;
using Mask = __mmask16;

constexpr int kAccumulators = 16;  // vectors that can be accumulated in parallel
constexpr int kFloatRows = 6, kFloatPanels = 4;
constexpr int kFewRows = 3, kFewRowsPanels = 4;
constexpr int kHeldPanels = 2;
constexpr int kByteRows = 3, kBytePanels = 4;

inline Floats every(float x) { return _mm512_set1_ps(x); }
inline Floats load(const float* at) { return _mm512_loadu_ps(at); }
inline Floats load(const float* at, Mask mask) { return _mm512_maskz_loadu_ps(mask, at); }
inline Floats load_half(const uint8_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
inline void store_half(uint8_t* at, Floats x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline void store(float* at, Floats x) { _mm512_storeu_ps(at, x); }
inline void store(float* at, Floats x, Mask mask) { _mm512_mask_storeu_ps(at, mask, x); }

inline Mask first_lanes(long count) { return count >= 16 ? 0xFFFF : static_cast<Mask>((1u << count) - 1); }
inline Mask without(Mask mask, Mask other) { return mask & ~other; }
inline Floats select(Mask mask, Floats x, Floats otherwise) { return _mm512_mask_blend_ps(mask, otherwise, x); }

inline Floats multiply_add(Floats a, Floats b, Floats sum) { return _mm512_fmadd_ps(a, b, sum); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats magnitude(Floats x) { return _mm512_abs_ps(x); }
inline Floats round(Floats x) { return _mm512_roundscale_ps(x, 0); }
inline Floats times_power_of_two(Floats x, Floats power) { return _mm512_scalef_ps(x, power); }
inline float largest(Floats x) { return _mm512_reduce_max_ps(x); }
inline float total(Floats x) { return _mm512_reduce_add_ps(x); }

inline int total(Ints x) { return _mm512_reduce_add_epi32(x); }
inline Ints sum(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints to_ints(Floats x) { return _mm512_cvtps_epi32(x); }
inline Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
inline void narrow(int8_t* at, Ints x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm512_cvtepi32_epi8(x));
}

inline Bytes load_bytes(const uint8_t* at) { return _mm512_loadu_si512(at); }
inline void store_bytes(uint8_t* at, Bytes x) { _mm512_storeu_si512(at, x); }
inline Bytes every_four(const int8_t* at) {
    int32_t four;
    std::memcpy(&four, at, 4);
    return _mm512_set1_epi32(four);
}
inline Bytes low_nibbles(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
inline Bytes high_nibbles(Bytes x) { return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15)); }

// `bits` bits of each 32 from bit `at` on; both are immediates once unrolled.
template <int bits>
inline Ints bits_from(Bytes x, int at) {
    const Ints moved = _mm512_srli_epi32(x, at);
    return at + bits == 32 ? moved : _mm512_and_si512(moved, _mm512_set1_epi32((1 << bits) - 1));
}
inline Bytes lower_halves_up(Bytes x) { return _mm512_slli_epi32(x, 16); }
inline Bytes upper_halves(Bytes x) { return _mm512_and_si512(x, _mm512_set1_epi32(-65536)); }
inline Floats as_floats(Bytes x) { return _mm512_castsi512_ps(x); }

// Sums of unsigned . signed bytes, four per lane, over a block.
struct Dots {
    static constexpr bool kTakesNibbles = false;
    Ints sums = _mm512_setzero_si512();

    // In assembly, because GCC 12 copies and spills the intrinsic's operand.
    void add(Bytes weights, Bytes activations) { asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(activations)); }
    Ints whole() const { return sums; }
};

}  // namespace
