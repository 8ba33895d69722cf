// Storage of matrices that are multiplied in float32: as in the model's file wherever that gives exactly the same
// weights, since products of few rows are memory-bound; more than kRowsReadPacked rows repay unpacking. Each kind is
// one panel's block, read kAtOnce inputs at a time.
#pragma once
#include "lanes.h"

namespace {

// [inputs][16]
struct HeldFloats {
    static constexpr long kInputs = 32, kBytes = kInputs * kLanes * 4, kRowsReadPacked = 0;
    static constexpr int kAtOnce = 1;
    const float *block, *at;

    void open(const uint8_t* from) { block = reinterpret_cast<const float*>(from); }
    void read(long i) { at = block + i * kLanes; }
    Floats weights(int) const { return load(at); }
};

// [inputs][16] of float16
struct HeldHalves {
    static constexpr long kInputs = 32, kBytes = kInputs * kLanes * 2, kRowsReadPacked = 12;
    static constexpr int kAtOnce = 1;
    const uint8_t *block, *at;

    void open(const uint8_t* from) { block = from; }
    void read(long i) { at = block + i * kLanes * 2; }
    Floats weights(int) const { return load_half(at); }
};

// [inputs / 2][16][2] of bfloat16
struct HeldBrains {
    static constexpr long kInputs = 32, kBytes = kInputs * kLanes * 2, kRowsReadPacked = 12;
    static constexpr int kAtOnce = 2;
    const uint8_t* block;
    Bytes words;

    void open(const uint8_t* from) { block = from; }
    void read(long i) { words = load_bytes(block + i * kLanes * 2); }
    Floats weights(int j) const { return as_floats(j ? upper_halves(words) : lower_halves_up(words)); }
};

// 16 scales and 16 offsets, float32, then values: for each output in turn as many as fill 32 bits. A weight is scale x
// value + offset, rounded once, which equals the file's own arithmetic, as scale x value is exact in float32.
template <long inputs, int bits>
struct HeldScaled {
    static constexpr long kHeader = 2 * kLanes * 4;
    static constexpr long kInputs = inputs, kBytes = kHeader + kInputs * kLanes * bits / 8, kRowsReadPacked = 6;
    static constexpr int kAtOnce = 32 / bits;
    Floats scales, offsets;
    const uint8_t* values;
    Bytes words;

    void open(const uint8_t* from) {
        scales = load(reinterpret_cast<const float*>(from));
        offsets = load(reinterpret_cast<const float*>(from) + kLanes);
        values = from + kHeader;
    }
    void read(long i) { words = load_bytes(values + i * kLanes * bits / 8); }
    Floats weights(int j) const { return multiply_add(scales, to_floats(bits_from<bits>(words, j * bits)), offsets); }
};

}  // namespace
