// y = x . w for weights of 4 or 8 bits in blocks of 32 inputs, or of float32. Every output is summed in an order that
// depends on its own row alone: not on how many rows there are, which of them share registers, or on threads.
#pragma once
#include "lanes.h"

namespace {

constexpr long kBlock = 32;              // inputs that share a scale, of weights and of activations
constexpr long kGroups = kBlock / 4;     // steps of four inputs, which one instruction adds up
constexpr long kHeader = 4 * kLanes;     // a block's scales and offsets, float16
constexpr long kByteBlock = kHeader + kBlock * kLanes;
constexpr long kNibbleBlock = kHeader + kBlock * kLanes / 2;
constexpr long kRowsReadPacked = 12;     // more rows than this repay unpacking nibbles into memory first
constexpr int kMaxPanels = 4;

enum Format : long { kFloat = 0, kBytes = 1, kNibbles = 2 };

// Panels of 16 outputs. Quantised: for each block of inputs 16 scales and 16 offsets, then unsigned values [8][16][4],
// or [4][16][4] with steps 0 to 3 in low and 4 to 7 in high nibbles; a weight is scale x value + offset. Float: [k][16].
struct Matrix {
    const uint8_t* packed;
    const float* bias;  // padded to whole panels; may be null
    long k, n, format;
};

// Rows that are multiplied: as they are for float matrices, else int8 in blocks with scales, and scale x sum of values.
struct Activations {
    float* plain;
    int8_t* values;
    float *scales, *sums;
};

inline void quantise_block(const float* x, int8_t* values, float* scale, float* scaled_sum) {
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
    const __m512 inverse = _mm512_set1_ps(largest > 0.0f ? 127.0f / largest : 0.0f);
    const __m512i a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
    const __m512i b = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values), _mm512_cvtepi32_epi8(a));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values + 16), _mm512_cvtepi32_epi8(b));
    *scale = largest / 127.0f;
    *scaled_sum = *scale * static_cast<float>(_mm512_reduce_add_epi32(_mm512_add_epi32(a, b)));
}

// One row as `w` wants it.
void take(const float* x, const Matrix& w, const Activations& out, long row) {
    if (w.format == kFloat) {
        if (x != out.plain + row * w.k) std::memcpy(out.plain + row * w.k, x, w.k * sizeof(float));
        return;
    }
    const long blocks = w.k / kBlock;
    for (long i = 0; i < blocks; ++i)
        quantise_block(x + i * kBlock, out.values + row * w.k + i * kBlock, out.scales + row * blocks + i,
                       out.sums + row * blocks + i);
}

// sums += unsigned . signed, four bytes a lane. As assembly, because GCC 12 copies and spills the intrinsic's operand.
inline void add_dots(__m512i& sums, __m512i weights, __m512i activations) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(activations));
}

inline __m512 load_half(const uint8_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

// Where a tile lies: its first row, its first panel's weights and columns, and what becomes of y.
struct Place {
    long row, column;
    const uint8_t* weights;
    float* y;
    bool adds;
};

template <int rows, int panels>
inline void store(const Matrix& w, const Place& at, const __m512 (&totals)[rows][panels]) {
    UNROLL
    for (int p = 0; p < panels; ++p) {
        const long column = at.column + p * kLanes;
        const __mmask16 mask = first_lanes(w.n - column);
        const __m512 bias = w.bias ? _mm512_loadu_ps(w.bias + column) : _mm512_setzero_ps();
        UNROLL
        for (int r = 0; r < rows; ++r) {
            float* y = at.y + (at.row + r) * w.n + column;
            const __m512 before = at.adds ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), bias) : bias;
            _mm512_mask_storeu_ps(y, mask, _mm512_add_ps(totals[r][p], before));
        }
    }
}

// Integer sums of a block, then scales. Both layouts do the same arithmetic, so either may serve any row.
template <bool has_nibbles>
struct Quantised {
    static constexpr int kMaxRows = 3;
    static constexpr long kBytesPerBlock = has_nibbles ? kNibbleBlock : kByteBlock;
    static long panel_bytes(const Matrix& w) { return w.k / kBlock * kBytesPerBlock; }

    static inline __m512i group(const uint8_t* block, long i) {
        if (!has_nibbles) return _mm512_loadu_si512(block + kHeader + i * 64);
        const __m512i both = _mm512_loadu_si512(block + kHeader + i % 4 * 64);
        return _mm512_and_si512(i < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
    }

    template <int rows, int panels>
    static inline void tile(const Activations& x, const Matrix& w, const Place& at) {
        const long blocks = w.k / kBlock, stride = blocks * kBytesPerBlock;
        const int8_t* values = x.values + at.row * w.k;
        const float *scales = x.scales + at.row * blocks, *value_sums = x.sums + at.row * blocks;
        __m512 totals[rows][panels];
        UNROLL
        for (int r = 0; r < rows; ++r)
            UNROLL
            for (int p = 0; p < panels; ++p) totals[r][p] = _mm512_setzero_ps();
        for (long block = 0; block < blocks; ++block) {
            const uint8_t* weights = at.weights + block * kBytesPerBlock;
            // The first rows read weights from memory, and a panel ends before the hardware has learnt its stream.
            if (at.row == 0)
                for (int p = 0; p < panels; ++p)
                    for (long line = 0; line < kBytesPerBlock; line += 64)
                        _mm_prefetch(weights + (p + panels) * stride + line, _MM_HINT_T1);
            __m512i sums[rows][panels];
            UNROLL
            for (int r = 0; r < rows; ++r)
                UNROLL
                for (int p = 0; p < panels; ++p) sums[r][p] = _mm512_setzero_si512();
            UNROLL
            for (long i = 0; i < kGroups; ++i) {
                __m512i b[panels];
                UNROLL
                for (int p = 0; p < panels; ++p) b[p] = group(weights + p * stride, i);
                UNROLL
                for (int r = 0; r < rows; ++r) {
                    int32_t four;
                    std::memcpy(&four, values + r * w.k + block * kBlock + i * 4, 4);
                    const __m512i a = _mm512_set1_epi32(four);
                    UNROLL
                    for (int p = 0; p < panels; ++p) add_dots(sums[r][p], b[p], a);
                }
            }
            UNROLL
            for (int p = 0; p < panels; ++p) {
                const __m512 scale = load_half(weights + p * stride), offset = load_half(weights + p * stride + 32);
                UNROLL
                for (int r = 0; r < rows; ++r) {
                    const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(scales[r * blocks + block]));
                    totals[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]), both, totals[r][p]);
                    totals[r][p] = _mm512_fmadd_ps(offset, _mm512_set1_ps(value_sums[r * blocks + block]), totals[r][p]);
                }
            }
        }
        store(w, at, totals);
    }
};

struct Float {
    static constexpr int kMaxRows = 6;
    static long panel_bytes(const Matrix& w) { return w.k * kLanes * sizeof(float); }

    template <int rows, int panels>
    static inline void tile(const Activations& x, const Matrix& w, const Place& at) {
        const float* values = x.plain + at.row * w.k;
        const float* weights = reinterpret_cast<const float*>(at.weights);
        __m512 totals[rows][panels];
        UNROLL
        for (int r = 0; r < rows; ++r)
            UNROLL
            for (int p = 0; p < panels; ++p) totals[r][p] = _mm512_setzero_ps();
        for (long i = 0; i < w.k; ++i) {
            __m512 b[panels];
            UNROLL
            for (int p = 0; p < panels; ++p) {
                b[p] = _mm512_loadu_ps(weights + (p * w.k + i) * kLanes);
                if (at.row == 0) _mm_prefetch(weights + ((p + panels) * w.k + i) * kLanes, _MM_HINT_T1);
            }
            UNROLL
            for (int r = 0; r < rows; ++r) {
                const __m512 a = _mm512_set1_ps(values[r * w.k + i]);
                UNROLL
                for (int p = 0; p < panels; ++p) totals[r][p] = _mm512_fmadd_ps(a, b[p], totals[r][p]);
            }
        }
        store(w, at, totals);
    }
};

template <class Kind, int panels, int rows>
inline void last_rows(const Activations& x, long left, const Matrix& w, const Place& at) {
    if (left == rows) Kind::template tile<rows, panels>(x, w, at);
    else if constexpr (rows > 1) last_rows<Kind, panels, rows - 1>(x, left, w, at);
}

template <class Kind, int panels>
inline void all_rows(const Activations& x, long rows, const Matrix& w, Place at) {
    for (; at.row + Kind::kMaxRows <= rows; at.row += Kind::kMaxRows)
        Kind::template tile<Kind::kMaxRows, panels>(x, w, at);
    if constexpr (Kind::kMaxRows > 1) last_rows<Kind, panels, Kind::kMaxRows - 1>(x, rows - at.row, w, at);
}

// Panels of nibbles as panels of bytes.
void unpack(const uint8_t* packed, long blocks, uint8_t* to) {
    for (long block = 0; block < blocks; ++block, packed += kNibbleBlock, to += kByteBlock) {
        std::memcpy(to, packed, kHeader);
        for (long i = 0; i < kGroups; ++i)
            _mm512_storeu_si512(to + kHeader + i * 64, Quantised<true>::group(packed, i));
    }
}

template <int panels>
inline void some_panels(const Activations& x, long rows, const Matrix& w, long panel, float* y, bool adds,
                        uint8_t* scratch) {
    Place at{0, panel * kLanes, w.packed, y, adds};
    if (w.format == kFloat) {
        at.weights += panel * Float::panel_bytes(w);
        return all_rows<Float, panels>(x, rows, w, at);
    }
    if (w.format == kBytes) {
        at.weights += panel * Quantised<false>::panel_bytes(w);
        return all_rows<Quantised<false>, panels>(x, rows, w, at);
    }
    at.weights += panel * Quantised<true>::panel_bytes(w);
    if (rows <= kRowsReadPacked) return all_rows<Quantised<true>, panels>(x, rows, w, at);
    unpack(at.weights, panels * w.k / kBlock, scratch);
    at.weights = scratch;
    all_rows<Quantised<false>, panels>(x, rows, w, at);
}

// Bytes of scratch that a thread needs for matrices of up to k inputs.
long scratch_bytes(long k) { return kMaxPanels * k / kBlock * kByteBlock; }

// y [rows, n] = or += x . w; each thread takes its share of the outputs.
void product(const Activations& x, long rows, const Matrix& w, float* y, bool adds, uint8_t* scratch, long thread,
             long threads) {
    const Range mine = share((w.n + kLanes - 1) / kLanes, thread, threads);
    long panel = mine.begin;
    for (; panel + kMaxPanels <= mine.end; panel += kMaxPanels) some_panels<4>(x, rows, w, panel, y, adds, scratch);
    switch (mine.end - panel) {
        case 3: return some_panels<3>(x, rows, w, panel, y, adds, scratch);
        case 2: return some_panels<2>(x, rows, w, panel, y, adds, scratch);
        case 1: return some_panels<1>(x, rows, w, panel, y, adds, scratch);
        default: return;
    }
}

}  // namespace
