// 16 floats in two AVX2 registers, and integer products by AVX-VNNI or in 16-bit sums, which need nibbles.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace {

struct Floats {
    __m256 low, high;
};
struct Ints {
    __m256i low, high;
};
using Bytes = Ints;
using Mask = Ints;

constexpr int kAccumulators = 6;  // vectors that can be accumulated in parallel
constexpr int kFloatRows = 6, kFloatPanels = 1;
constexpr int kFewRows = 3, kFewRowsPanels = 2;  // one row in one panel would be latency-bound
constexpr int kHeldPanels = 1;
constexpr int kByteRows = 4, kBytePanels = 1;

inline Floats operator+(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline Floats operator-(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
inline Floats operator*(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
inline Floats operator/(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
inline Floats multiply_add(Floats a, Floats b, Floats sum) {
    return {_mm256_fmadd_ps(a.low, b.low, sum.low), _mm256_fmadd_ps(a.high, b.high, sum.high)};
}
inline Floats max(Floats a, Floats b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }

inline Floats every(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
inline Floats load(const float* at, Mask mask) {
    return {_mm256_maskload_ps(at, mask.low), _mm256_maskload_ps(at + 8, mask.high)};
}
inline Floats load_half(const uint8_t* at) {
    const __m128i* halves = reinterpret_cast<const __m128i*>(at);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
}
inline void store_half(uint8_t* at, Floats x) {
    __m128i* halves = reinterpret_cast<__m128i*>(at);
    _mm_storeu_si128(halves, _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}
inline void store(float* at, Floats x) {
    _mm256_storeu_ps(at, x.low);
    _mm256_storeu_ps(at + 8, x.high);
}
inline void store(float* at, Floats x, Mask mask) {
    _mm256_maskstore_ps(at, mask.low, x.low);
    _mm256_maskstore_ps(at + 8, mask.high, x.high);
}

inline Mask first_lanes(long count) {
    const __m256i end = _mm256_set1_epi32(count >= 16 ? 16 : static_cast<int>(count));
    return {_mm256_cmpgt_epi32(end, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
            _mm256_cmpgt_epi32(end, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}
inline Mask without(Mask mask, Mask other) {
    return {_mm256_andnot_si256(other.low, mask.low), _mm256_andnot_si256(other.high, mask.high)};
}
inline Floats select(Mask mask, Floats x, Floats otherwise) {
    return {_mm256_blendv_ps(otherwise.low, x.low, _mm256_castsi256_ps(mask.low)),
            _mm256_blendv_ps(otherwise.high, x.high, _mm256_castsi256_ps(mask.high))};
}

inline Floats magnitude(Floats x) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
inline Floats round(Floats x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}
inline __m256 power_of_two(__m256i power) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(power, _mm256_set1_epi32(127)), 23));
}
inline __m256 times_power_of_two(__m256 x, __m256 power) {
    // In two steps, since the square of the largest power of two in a float would be infinite.
    const __m256i whole = _mm256_cvtps_epi32(_mm256_min_ps(power, _mm256_set1_ps(254.0f)));
    const __m256i half = _mm256_srai_epi32(whole, 1);
    return _mm256_mul_ps(_mm256_mul_ps(x, power_of_two(half)), power_of_two(_mm256_sub_epi32(whole, half)));
}
inline Floats times_power_of_two(Floats x, Floats power) {
    return {times_power_of_two(x.low, power.low), times_power_of_two(x.high, power.high)};
}
inline float largest(Floats x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}
inline float total(Floats x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

inline Ints sum(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
inline int total(Ints x) {
    const __m256i eight = _mm256_add_epi32(x.low, x.high);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}
inline Ints to_ints(Floats x) { return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)}; }
inline Floats to_floats(Ints x) { return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)}; }
inline void narrow(int8_t* at, Ints x) {
    const __m256i mixed = _mm256_packs_epi32(x.low, x.high), shorts = _mm256_permute4x64_epi64(mixed, 0xD8);
    const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(shorts), _mm256_extracti128_si256(shorts, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), bytes);
}

inline Bytes load_bytes(const uint8_t* at) {
    const __m256i* halves = reinterpret_cast<const __m256i*>(at);
    return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
inline void store_bytes(uint8_t* at, Bytes x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), x.low);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + 32), x.high);
}
inline Bytes every_four(const int8_t* at) {
    int32_t four;
    std::memcpy(&four, at, 4);
    return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
}
inline Bytes low_nibbles(Bytes x) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
}
inline Bytes high_nibbles(Bytes x) {
    return low_nibbles({_mm256_srli_epi16(x.low, 4), _mm256_srli_epi16(x.high, 4)});
}
// `bits` bits of each 32 from bit `at` on; both are immediates once unrolled.
template <int bits>
inline Ints bits_from(Bytes x, int at) {
    const Ints moved = {_mm256_srli_epi32(x.low, at), _mm256_srli_epi32(x.high, at)};
    if (at + bits == 32) return moved;
    const __m256i mask = _mm256_set1_epi32((1 << bits) - 1);
    return {_mm256_and_si256(moved.low, mask), _mm256_and_si256(moved.high, mask)};
}
inline Bytes lower_halves_up(Bytes x) { return {_mm256_slli_epi32(x.low, 16), _mm256_slli_epi32(x.high, 16)}; }
inline Bytes upper_halves(Bytes x) {
    const __m256i mask = _mm256_set1_epi32(-65536);
    return {_mm256_and_si256(x.low, mask), _mm256_and_si256(x.high, mask)};
}
inline Floats as_floats(Bytes x) { return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)}; }
inline Ints times_16(Ints x) { return {_mm256_slli_epi32(x.low, 4), _mm256_slli_epi32(x.high, 4)}; }

#ifdef __AVXVNNI__
// Sums of unsigned . signed bytes, four per lane, over a block; in assembly for the reason given in lanes_avx512.h.
struct Dots {
    static constexpr bool kTakesNibbles = false;
    Ints sums = {_mm256_setzero_si256(), _mm256_setzero_si256()};

    void add(Bytes weights, Bytes activations) {
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums.low) : "x"(weights.low), "x"(activations.low));
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums.high) : "x"(weights.high), "x"(activations.high));
    }
    Ints whole() const { return sums; }
};
#else
// Sums of unsigned . signed bytes, four per lane, over a block: 16 products of 15 x 127 fit 16 bits.
struct Dots {
    static constexpr bool kTakesNibbles = true;
    __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();

    void add(Bytes weights, Bytes activations) {
        low = _mm256_add_epi16(low, _mm256_maddubs_epi16(weights.low, activations.low));
        high = _mm256_add_epi16(high, _mm256_maddubs_epi16(weights.high, activations.high));
        asm("" : "+x"(low), "+x"(high));  // else GCC 12 reorders the sums and runs out of registers
    }
    Ints whole() const {
        const __m256i ones = _mm256_set1_epi16(1);
        return {_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones)};
    }
};
#endif

}  // namespace
