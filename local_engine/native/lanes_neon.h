// 16 floats in four 128-bit vectors, using the compiler's vector extensions; instructions that these cannot express
// have two versions. Written for AArch64; other little-endian processors compute the same, more slowly.
#pragma once
#include <cstdint>
#include <cstring>
#ifdef __ARM_NEON
#include <arm_neon.h>
#endif

namespace {

using Four = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));
using FourWords = uint32_t __attribute__((vector_size(16)));

template <class Part>
struct Vector {
    Part parts[4];
};
using Floats = Vector<Four>;
using Ints = Vector<FourInts>;
using Bytes = Vector<FourWords>;

// Lanes `begin` to `end`.
struct Mask {
    int begin, end;
};

constexpr int kAccumulators = 4;  // vectors that can be accumulated in parallel
constexpr int kFloatRows = 6, kFloatPanels = 1;
constexpr int kFewRows = 2, kFewRowsPanels = 2;
constexpr int kHeldPanels = 1;
constexpr int kByteRows = 3, kBytePanels = 1;

template <class Make>
inline auto each(Make make) -> Vector<decltype(make(0))> {
    return {{make(0), make(1), make(2), make(3)}};
}
template <class To, class Part>
inline Vector<To> as(Vector<Part> x) {
    return each([&](int i) { return reinterpret_cast<To>(x.parts[i]); });
}

inline Floats operator+(Floats a, Floats b) { return each([&](int i) { return a.parts[i] + b.parts[i]; }); }
inline Floats operator-(Floats a, Floats b) { return each([&](int i) { return a.parts[i] - b.parts[i]; }); }
inline Floats operator*(Floats a, Floats b) { return each([&](int i) { return a.parts[i] * b.parts[i]; }); }
inline Floats operator/(Floats a, Floats b) { return each([&](int i) { return a.parts[i] / b.parts[i]; }); }
inline Floats multiply_add(Floats a, Floats b, Floats sum) {
#ifdef __ARM_NEON
    return each([&](int i) -> Four { return vfmaq_f32(sum.parts[i], a.parts[i], b.parts[i]); });
#else
    return a * b + sum;
#endif
}
inline Floats max(Floats a, Floats b) {
    return each([&](int i) { return a.parts[i] > b.parts[i] ? a.parts[i] : b.parts[i]; });
}

inline Floats every(float x) {
    const Four four = {x, x, x, x};
    return {{four, four, four, four}};
}
inline Floats load(const float* at) {
    Floats x;
    std::memcpy(&x, at, sizeof x);
    return x;
}
inline void store(float* at, Floats x) { std::memcpy(at, &x, sizeof x); }

inline Mask first_lanes(long count) { return {0, count >= 16 ? 16 : static_cast<int>(count)}; }
// `other` must consist of the first lanes.
inline Mask without(Mask mask, Mask other) { return {other.end > mask.begin ? other.end : mask.begin, mask.end}; }
inline Floats select(Mask mask, Floats x, Floats otherwise) {
    const FourInts first = {0, 1, 2, 3};
    return each([&](int i) {
        const FourInts lane = first + 4 * i;
        return ((lane >= mask.begin) & (lane < mask.end)) ? x.parts[i] : otherwise.parts[i];
    });
}
inline Floats load(const float* at, Mask mask) {
    if (mask.end == 16) return load(at);
    float lanes[16] = {};
    for (int i = 0; i < mask.end; ++i) lanes[i] = at[i];
    return load(lanes);
}
inline void store(float* at, Floats x, Mask mask) {
    if (mask.end == 16) return store(at, x);
    float lanes[16];
    store(lanes, x);
    for (int i = 0; i < mask.end; ++i) at[i] = lanes[i];
}

inline Floats magnitude(Floats x) {
    return each([&](int i) { return reinterpret_cast<Four>(reinterpret_cast<FourWords>(x.parts[i]) & 0x7FFFFFFFu); });
}
// Half to even: above 2^23 a float has no fraction bits.
inline Floats round(Floats x) {
    const Floats large = every(0x1.8p23f);
    return (x + large) - large;
}
inline Four power_of_two(FourInts power) { return reinterpret_cast<Four>((power + 127) << 23); }
inline Floats times_power_of_two(Floats x, Floats power) {
    // In two steps, since the square of the largest power of two in a float would be infinite.
    return each([&](int i) {
        const Four most = {254.0f, 254.0f, 254.0f, 254.0f};
        const Four least = power.parts[i] < most ? power.parts[i] : most;
        const FourInts whole = __builtin_convertvector(least, FourInts), half = whole >> 1;
        return x.parts[i] * power_of_two(half) * power_of_two(whole - half);
    });
}
inline float largest(Floats x) {
    float lanes[16], found = x.parts[0][0];
    store(lanes, x);
    for (const float lane : lanes) found = lane > found ? lane : found;
    return found;
}
// In the same order as on the other processors.
inline float total(Floats x) {
    const Four four = (x.parts[0] + x.parts[2]) + (x.parts[1] + x.parts[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

inline Ints sum(Ints a, Ints b) { return each([&](int i) { return a.parts[i] + b.parts[i]; }); }
inline int total(Ints x) {
    const FourInts four = x.parts[0] + x.parts[1] + x.parts[2] + x.parts[3];
    return four[0] + four[1] + four[2] + four[3];
}
inline Ints to_ints(Floats x) {
    const Floats whole = round(x);
    return each([&](int i) { return __builtin_convertvector(whole.parts[i], FourInts); });
}
inline Floats to_floats(Ints x) {
    return each([&](int i) { return __builtin_convertvector(x.parts[i], Four); });
}
inline void narrow(int8_t* at, Ints x) {
    int32_t lanes[16];
    std::memcpy(lanes, &x, sizeof lanes);
    for (int i = 0; i < 16; ++i) at[i] = static_cast<int8_t>(lanes[i]);
}

inline Bytes load_bytes(const uint8_t* at) {
    Bytes x;
    std::memcpy(&x, at, sizeof x);
    return x;
}
inline void store_bytes(uint8_t* at, Bytes x) { std::memcpy(at, &x, sizeof x); }
inline Bytes every_four(const int8_t* at) {
    uint32_t word;
    std::memcpy(&word, at, 4);
    const FourWords four = {word, word, word, word};
    return {{four, four, four, four}};
}
inline Bytes low_nibbles(Bytes x) {
    return each([&](int i) { return x.parts[i] & 0x0F0F0F0Fu; });
}
inline Bytes high_nibbles(Bytes x) {
    return each([&](int i) { return x.parts[i] >> 4 & 0x0F0F0F0Fu; });
}
// `bits` bits of each 32 from bit `at` on.
template <int bits>
inline Ints bits_from(Bytes x, int at) {
    return each([&](int i) { return reinterpret_cast<FourInts>(x.parts[i] >> at & ((1u << bits) - 1)); });
}
inline Bytes lower_halves_up(Bytes x) {
    return each([&](int i) { return x.parts[i] << 16; });
}
inline Bytes upper_halves(Bytes x) {
    return each([&](int i) { return x.parts[i] & 0xFFFF0000u; });
}
inline Floats as_floats(Bytes x) { return as<Four>(x); }
inline Ints times_16(Ints x) {
    return each([&](int i) { return x.parts[i] << 4; });
}

// A float16 in the lower half of each word.
inline Four from_half(FourWords half) {
    const FourWords infinite = {0x0F800000u, 0x0F800000u, 0x0F800000u, 0x0F800000u}, size = (half & 0x7FFFu) << 13;
    // Shifted into place a float16, even a subnormal one, is too small by a factor of 2^112.
    const FourWords whole = reinterpret_cast<FourWords>(reinterpret_cast<Four>(size) * 0x1p112f);
    return reinterpret_cast<Four>(whole | (size >= infinite ? infinite << 3 : infinite & 0u) | (half & 0x8000u) << 16);
}
inline Floats load_half(const uint8_t* at) {
#ifdef __ARM_NEON
    return each([&](int i) -> Four { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at + 8 * i))); });
#else
    uint16_t halves[16];
    std::memcpy(halves, at, sizeof halves);
    return each([&](int i) {
        const uint16_t* four = halves + 4 * i;
        return from_half(FourWords{four[0], four[1], four[2], four[3]});
    });
#endif
}
inline uint16_t to_half(float x) {
    uint32_t word;
    std::memcpy(&word, &x, 4);
    const uint32_t sign = word >> 16 & 0x8000u, size = word & 0x7FFFFFFFu;
    if (size >= 0x47800000u) return sign | (size > 0x7F800000u ? 0x7E00u : 0x7C00u);
    if (size >= 0x38800000u) return sign | (size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13;
    // A subnormal float16 counts steps of 2^-24, the last place of a float near one half.
    float small;
    std::memcpy(&small, &size, 4);
    small += 0.5f;
    std::memcpy(&word, &small, 4);
    return sign | (word - 0x3F000000u);
}
inline void store_half(uint8_t* at, Floats x) {
    float lanes[16];
    store(lanes, x);
    for (int i = 0; i < 16; ++i) {
        const uint16_t half = to_half(lanes[i]);
        std::memcpy(at + 2 * i, &half, 2);
    }
}

// Sums of unsigned . signed bytes, four per lane, over a block.
struct Dots {
    Ints sums = {};
#ifdef __ARM_FEATURE_DOTPROD
    static constexpr bool kTakesNibbles = true;  // both operands are treated as signed

    void add(Bytes weights, Bytes activations) {
        for (int i = 0; i < 4; ++i)
            sums.parts[i] = vdotq_s32(sums.parts[i], reinterpret_cast<int8x16_t>(weights.parts[i]),
                                      reinterpret_cast<int8x16_t>(activations.parts[i]));
    }
#else
    static constexpr bool kTakesNibbles = false;

    void add(Bytes weights, Bytes activations) {
        UNROLL
        for (int at = 0; at < 32; at += 8)
            sums = each([&](int i) {
                const FourInts weight = reinterpret_cast<FourInts>(weights.parts[i] >> at & 0xFFu);
                return sums.parts[i] + weight * (reinterpret_cast<FourInts>(activations.parts[i] << (24 - at)) >> 24);
            });
    }
#endif
    Ints whole() const { return sums; }
};

}  // namespace
