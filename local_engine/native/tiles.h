// y = x . w for a few rows and panels, by integers for 4- or 8-bit weights in blocks of 32 inputs, or in float32. The
// order in which an output is summed depends only on its own row, not on which rows share registers.
#pragma once
#include <cstring>

#include "held.h"
#include "lanes.h"

namespace {

constexpr long kBlock = 32;              // inputs that share a scale, of weights and of activations
constexpr long kGroups = kBlock / 4;     // steps of four inputs, which one instruction adds up
constexpr long kRowsReadPacked = 12;     // above this many rows, unpacking nibbles into bytes first pays off
constexpr long kHeader = 4 * kLanes;     // a block's scales and offsets, float16
constexpr long kByteBlock = kHeader + kBlock * kLanes;
constexpr long kNibbleBlock = kHeader + kBlock * kLanes / 2;

// The first two are multiplied as integers, all others in float32 with exactly the weights that they represent.
enum Format : long {
    kBytes = 0,
    kNibbles = 1,
    kFloats = 2,
    kHalves = 3,  // float16
    kBrains = 4,  // bfloat16
    kScaledBytes = 5,
    kScaledShort = 6,
    kScaledNibbles = 7
};

// Panels of 16 outputs. For integers: per block of inputs 16 scales and 16 offsets, then unsigned values [8][16][4], or
// [4][16][4] with steps 0 to 3 in low and 4 to 7 in high nibbles; a weight is scale x value + offset. For float32:
// held.h.
struct Matrix {
    const uint8_t* packed;
    const float* bias;  // padded to whole panels; may be null
    long k, n, format;
};

// Rows to multiply: unchanged for float matrices, otherwise int8 in blocks with scales, and scale x sum of values.
struct Activations {
    float* plain;
    int8_t* values;
    float *scales, *sums;
};

inline void quantise_block(const float* x, int8_t* values, float* scale, float* scaled_sum) {
    const Floats low = load(x), high = load(x + kLanes);
    const float peak = largest(max(magnitude(low), magnitude(high)));
    const Floats inverse = every(peak > 0.0f ? 127.0f / peak : 0.0f);
    const Ints a = to_ints(low * inverse), b = to_ints(high * inverse);
    narrow(values, a);
    narrow(values + kLanes, b);
    *scale = peak / 127.0f;
    *scaled_sum = *scale * static_cast<float>(total(sum(a, b)));
}

// Stores one row in the form that `w` needs.
void take(const float* x, const Matrix& w, const Activations& out, long row) {
    if (w.format >= kFloats) {
        if (x != out.plain + row * w.k) std::memcpy(out.plain + row * w.k, x, w.k * sizeof(float));
        return;
    }
    const long blocks = w.k / kBlock;
    for (long i = 0; i < blocks; ++i)
        quantise_block(x + i * kBlock, out.values + row * w.k + i * kBlock, out.scales + row * blocks + i,
                       out.sums + row * blocks + i);
}

// Rows from `row` on, stored for `w`.
inline Activations rows_from(const Activations& x, const Matrix& w, long row) {
    const long blocks = w.k / kBlock;
    return {x.plain + row * w.k, x.values + row * w.k, x.scales + row * blocks, x.sums + row * blocks};
}

// Position of a tile: its first row, its first panel's weights and columns, and what to do with y.
struct Place {
    long row, column;
    const uint8_t* weights;
    float* y;
    bool adds;
};

template <int rows, int panels>
inline void store(const Matrix& w, const Place& at, const Floats (&totals)[rows][panels]) {
    UNROLL
    for (int p = 0; p < panels; ++p) {
        const long column = at.column + p * kLanes;
        const Mask mask = first_lanes(w.n - column);
        const Floats bias = w.bias ? load(w.bias + column) : every(0.0f);
        UNROLL
        for (int r = 0; r < rows; ++r) {
            float* y = at.y + (at.row + r) * w.n + column;
            const Floats before = at.adds ? load(y, mask) + bias : bias;
            store(y, totals[r][p] + before, mask);
        }
    }
}

// Storage of a block's values: whole bytes, bytes below 16, or nibbles.
enum class Layout { kBytes, kSmallBytes, kNibbles };

// Integer sums per block, then scaled. All layouts do the same arithmetic, so any may serve any row.
template <Layout layout>
struct Quantised {
    static constexpr int kMaxRows = kByteRows, kMaxPanels = kBytePanels;
    static constexpr long kBytesPerBlock = layout == Layout::kNibbles ? kNibbleBlock : kByteBlock;
    static constexpr bool kIsSplit = layout == Layout::kBytes && Dots::kTakesNibbles;
    static long panel_bytes(const Matrix& w) { return w.k / kBlock * kBytesPerBlock; }

    // Unpacks blocks of nibbles to blocks of bytes.
    static void unpack(const uint8_t* from, long inputs, uint8_t* to) {
        for (long k = 0; k < inputs; k += kBlock, from += kBytesPerBlock, to += kByteBlock) {
            std::memcpy(to, from, kHeader);
            for (long i = 0; i < kGroups; ++i) store_bytes(to + kHeader + i * 64, group(from, i));
        }
    }

    static inline Bytes group(const uint8_t* block, long i) {
        if (layout != Layout::kNibbles) return load_bytes(block + kHeader + i * 64);
        const Bytes both = load_bytes(block + kHeader + i % 4 * 64);
        return i < 4 ? low_nibbles(both) : high_nibbles(both);
    }

    // The integer sums of one block, or of the part of its values that `part` extracts.
    template <int rows, int panels, class Part>
    static inline void add_up(const uint8_t* weights, long stride, const int8_t* values, long k, Part part,
                              Ints (&sums)[rows][panels]) {
        Dots dots[rows][panels];
        UNROLL
        for (long i = 0; i < kGroups; ++i) {
            Bytes b[panels];
            UNROLL
            for (int p = 0; p < panels; ++p) b[p] = part(group(weights + p * stride, i));
            UNROLL
            for (int r = 0; r < rows; ++r) {
                const Bytes a = every_four(values + r * k + i * 4);
                UNROLL
                for (int p = 0; p < panels; ++p) dots[r][p].add(b[p], a);
            }
        }
        UNROLL
        for (int r = 0; r < rows; ++r)
            UNROLL
            for (int p = 0; p < panels; ++p) sums[r][p] = dots[r][p].whole();
    }

    template <int rows, int panels>
    static inline void tile(const Activations& x, const Matrix& w, const Place& at) {
        const long blocks = w.k / kBlock, stride = blocks * kBytesPerBlock;
        const int8_t* values = x.values + at.row * w.k;
        const float *scales = x.scales + at.row * blocks, *value_sums = x.sums + at.row * blocks;
        Floats totals[rows][panels];
        UNROLL
        for (int r = 0; r < rows; ++r)
            UNROLL
            for (int p = 0; p < panels; ++p) totals[r][p] = every(0.0f);
        for (long block = 0; block < blocks; ++block) {
            const uint8_t* weights = at.weights + block * kBytesPerBlock;
            // The first rows read weights from memory, and a panel ends before the hardware prefetcher recognises the
            // stream.
            if (at.row == 0)
                for (int p = 0; p < panels; ++p)
                    for (long line = 0; line < kBytesPerBlock; line += 64)
                        __builtin_prefetch(weights + (p + panels) * stride + line, 0, 2);
            Ints sums[rows][panels];
            if constexpr (kIsSplit) {
                Ints sixteenths[rows][panels];
                add_up(weights, stride, values + block * kBlock, w.k, high_nibbles, sixteenths);
                asm("" ::: "memory");  // else GCC 12 extracts all nibbles at once and runs out of registers
                add_up(weights, stride, values + block * kBlock, w.k, low_nibbles, sums);
                UNROLL
                for (int r = 0; r < rows; ++r)
                    UNROLL
                    for (int p = 0; p < panels; ++p) sums[r][p] = sum(sums[r][p], times_16(sixteenths[r][p]));
            } else {
                add_up(weights, stride, values + block * kBlock, w.k, [](Bytes all) { return all; }, sums);
            }
            UNROLL
            for (int p = 0; p < panels; ++p) {
                const Floats scale = load_half(weights + p * stride), offset = load_half(weights + p * stride + 32);
                UNROLL
                for (int r = 0; r < rows; ++r) {
                    const Floats both = scale * every(scales[r * blocks + block]);
                    totals[r][p] = multiply_add(to_floats(sums[r][p]), both, totals[r][p]);
                    totals[r][p] = multiply_add(offset, every(value_sums[r * blocks + block]), totals[r][p]);
                }
            }
        }
        store(w, at, totals);
    }
};

// Products of floats.
template <int most_rows, int most_panels>
struct Float {
    static constexpr int kMaxRows = most_rows, kMaxPanels = most_panels;
    static long panel_bytes(const Matrix& w) { return w.k * kLanes * sizeof(float); }

    template <int rows, int panels>
    static inline void tile(const Activations& x, const Matrix& w, const Place& at) {
        const float* values = x.plain + at.row * w.k;
        const float* weights = reinterpret_cast<const float*>(at.weights);
        Floats totals[rows][panels];
        UNROLL
        for (int r = 0; r < rows; ++r)
            UNROLL
            for (int p = 0; p < panels; ++p) totals[r][p] = every(0.0f);
        for (long i = 0; i < w.k; ++i) {
            Floats b[panels];
            UNROLL
            for (int p = 0; p < panels; ++p) {
                b[p] = load(weights + (p * w.k + i) * kLanes);
                if (at.row == 0) __builtin_prefetch(weights + ((p + panels) * w.k + i) * kLanes, 0, 2);
            }
            UNROLL
            for (int r = 0; r < rows; ++r) {
                const Floats a = every(values[r * w.k + i]);
                UNROLL
                for (int p = 0; p < panels; ++p) totals[r][p] = multiply_add(a, b[p], totals[r][p]);
            }
        }
        store(w, at, totals);
    }
};

// The same, with the same sums, for weights stored as `Held`.
template <class Held, int most_rows, int most_panels>
struct FloatOf {
    static constexpr int kMaxRows = most_rows, kMaxPanels = most_panels;
    static long panel_bytes(const Matrix& w) { return w.k / Held::kInputs * Held::kBytes; }

    // Calls `take` with each input's weights, for one panel or several.
    template <class Take>
    static inline void each(const uint8_t* from, long inputs, Take take) {
        for (long k = 0; k < inputs; k += Held::kInputs, from += Held::kBytes) {
            Held held;
            held.open(from);
            for (long i = 0; i < Held::kInputs; i += Held::kAtOnce) {
                held.read(i);
                UNROLL
                for (int j = 0; j < Held::kAtOnce; ++j) take(k + i + j, held.weights(j));
            }
        }
    }
    static void unpack(const uint8_t* from, long inputs, uint8_t* to) {
        float* floats = reinterpret_cast<float*>(to);
        each(from, inputs, [=](long i, Floats weights) { store(floats + i * kLanes, weights); });
    }
    static void read_lane(const uint8_t* from, long inputs, long lane, float* to) {
        each(from, inputs, [=](long i, Floats weights) {
            alignas(64) float lanes[kLanes];
            store(lanes, weights);
            to[i] = lanes[lane];
        });
    }

    template <int rows, int panels>
    static inline void tile(const Activations& x, const Matrix& w, const Place& at) {
        const long stride = panel_bytes(w);
        const float* values = x.plain + at.row * w.k;
        const uint8_t* weights = at.weights;
        Floats totals[rows][panels];
        UNROLL
        for (int r = 0; r < rows; ++r)
            UNROLL
            for (int p = 0; p < panels; ++p) totals[r][p] = every(0.0f);
        for (long k = 0; k < w.k; k += Held::kInputs, weights += Held::kBytes) {
            Held held[panels];
            UNROLL
            for (int p = 0; p < panels; ++p) {
                held[p].open(weights + p * stride);
                if (at.row == 0)
                    for (long line = 0; line < Held::kBytes; line += 64)
                        __builtin_prefetch(weights + (p + panels) * stride + line, 0, 2);
            }
            for (long i = 0; i < Held::kInputs; i += Held::kAtOnce, values += Held::kAtOnce) {
                UNROLL
                for (int p = 0; p < panels; ++p) held[p].read(i);
                UNROLL
                for (int j = 0; j < Held::kAtOnce; ++j) {
                    Floats b[panels];
                    UNROLL
                    for (int p = 0; p < panels; ++p) b[p] = held[p].weights(j);
                    UNROLL
                    for (int r = 0; r < rows; ++r) {
                        const Floats a = every(values[r * w.k + j]);
                        UNROLL
                        for (int p = 0; p < panels; ++p) totals[r][p] = multiply_add(a, b[p], totals[r][p]);
                    }
                }
            }
        }
        store(w, at, totals);
    }
};

// Calls `use` with the storage of a matrix that is multiplied in float32.
template <class Use>
void with_held(const Matrix& w, Use use) {
    switch (w.format) {
        case kFloats: return use(HeldFloats());
        case kHalves: return use(HeldHalves());
        case kBrains: return use(HeldBrains());
        case kScaledBytes: return use(HeldScaled<32, 8>());
        case kScaledShort: return use(HeldScaled<16, 8>());
        default: return use(HeldScaled<32, 4>());
    }
}

}  // namespace
