// Attention over a paged float32 cache whose keys lie transposed within their blocks, so that 16 scores are one vector.
// A row passes over its keys in strips of 32 from the first on: its bits depend on its own position alone.
#pragma once
#include <vector>

#include "lanes.h"

namespace {

constexpr long kTileRows = 8;  // rows of one sequence that share a pass over its keys
constexpr int kStrip = 2;      // cache blocks that share a softmax step; two fit the first-level cache

struct Cache {
    float* keys;    // [blocks][kv_heads][head_size][16]
    float* values;  // [blocks][kv_heads][16][head_size]
};

struct Heads {
    long query, kv, size;
    long window;  // keys that a row sees, its own included; 0 for all

    // The first key that a row sees.
    long oldest(long position) const { return window ? std::max(0L, position + 1 - window) : 0; }
    long width() const { return (query + 2 * kv) * size; }
};

struct Step {
    long rows;
    const int32_t* positions;  // of each row
    const int32_t* sequences;  // of each row, an index into block_table
    const int32_t* block_table;
    long table_stride;
};

struct Tile {
    long row, rows;
};

// Running softmax of one query head.
template <int chunks>
struct Running {
    __m512 total;
    float peak;
    __m512 sum[chunks * 4];
};

// One KV head's part of the blocks of a strip.
struct Strip {
    const float *keys[kStrip], *values[kStrip];
};

template <int group, int blocks>
inline void score(const float* q, const Strip& strip, long size, __m512 (&scores)[group][kStrip]) {
    __m512 sums[group][blocks];
    UNROLL
    for (int g = 0; g < group; ++g)
        UNROLL
        for (int b = 0; b < blocks; ++b) sums[g][b] = _mm512_setzero_ps();
    for (long d = 0; d < size; ++d) {
        __m512 keys[blocks];
        UNROLL
        for (int b = 0; b < blocks; ++b) keys[b] = _mm512_loadu_ps(strip.keys[b] + d * kLanes);
        UNROLL
        for (int g = 0; g < group; ++g) {
            const __m512 query = _mm512_set1_ps(q[g * size + d]);
            UNROLL
            for (int b = 0; b < blocks; ++b) sums[g][b] = _mm512_fmadd_ps(query, keys[b], sums[g][b]);
        }
    }
    UNROLL
    for (int g = 0; g < group; ++g)
        UNROLL
        for (int b = 0; b < kStrip; ++b) scores[g][b] = b < blocks ? sums[g][b] : _mm512_set1_ps(-INFINITY);
}

// Adds weights . values to the running sums, 64 columns at a time.
template <int group, int chunks>
inline void gather(const Strip& strip, const float (&weights)[group][kStrip * kLanes], long size, long seen,
                   Running<chunks>* state) {
    UNROLL
    for (int c = 0; c < chunks; ++c) {
        __m512 sums[group][4];
        UNROLL
        for (int g = 0; g < group; ++g)
            UNROLL
            for (int d = 0; d < 4; ++d) sums[g][d] = state[g].sum[c * 4 + d];
        for (long first = 0; first < seen; first += kLanes) {
            const float* values = strip.values[first / kLanes] + c * 64;
            const long slots = std::min(seen - first, kLanes);
            for (long slot = 0; slot < slots; ++slot)
                UNROLL
                for (int d = 0; d < 4; ++d) {
                    const __m512 value = _mm512_loadu_ps(values + slot * size + d * 16);
                    UNROLL
                    for (int g = 0; g < group; ++g)
                        sums[g][d] = _mm512_fmadd_ps(_mm512_set1_ps(weights[g][first + slot]), value, sums[g][d]);
                }
        }
        UNROLL
        for (int g = 0; g < group; ++g)
            UNROLL
            for (int d = 0; d < 4; ++d) state[g].sum[c * 4 + d] = sums[g][d];
    }
}

// Folds the first `seen` keys of a strip, at most 32, but for the first `hidden` of them, into the running softmax of
// `group` heads.
template <int group, int chunks>
inline void fold(const float* q, const Strip& strip, long size, long seen, long hidden, Running<chunks>* state) {
    __m512 scores[group][kStrip];
    if (seen <= kLanes) score<group, 1>(q, strip, size, scores);
    else score<group, kStrip>(q, strip, size, scores);
    alignas(64) float weights[group][kStrip * kLanes];
    __mmask16 visible[kStrip];
    UNROLL
    for (int b = 0; b < kStrip; ++b)
        visible[b] = first_lanes(std::max(0L, seen - b * kLanes)) & ~first_lanes(std::max(0L, hidden - b * kLanes));
    UNROLL
    for (int g = 0; g < group; ++g) {
        Running<chunks>& s = state[g];
        __m512 masked[kStrip];
        UNROLL
        for (int b = 0; b < kStrip; ++b)
            masked[b] = _mm512_mask_blend_ps(visible[b], _mm512_set1_ps(-INFINITY), scores[g][b]);
        const float peak = _mm512_reduce_max_ps(_mm512_max_ps(masked[0], masked[1]));
        if (peak > s.peak) {
            const __m512 keep = exp_ps(_mm512_set1_ps(s.peak - peak));
            s.total = _mm512_mul_ps(s.total, keep);
            UNROLL
            for (int c = 0; c < chunks * 4; ++c) s.sum[c] = _mm512_mul_ps(s.sum[c], keep);
            s.peak = peak;
        }
        UNROLL
        for (int b = 0; b < kStrip; ++b) {
            const __m512 weight = _mm512_maskz_mov_ps(visible[b], exp_ps(_mm512_sub_ps(masked[b], _mm512_set1_ps(s.peak))));
            s.total = _mm512_add_ps(s.total, weight);
            _mm512_store_ps(weights[g] + b * kLanes, weight);
        }
    }
    gather<group, chunks>(strip, weights, size, std::min(seen, kStrip * kLanes), state);
}

// `group` query heads from `head` on, all of one KV head, for the rows of a tile.
template <int group, int chunks>
void attend(const Heads& heads, const Cache& cache, const Step& step, const Tile& tile, long head, const float* qkv,
            float* out) {
    const long size = heads.size, kv_head = head / (heads.query / heads.kv);
    const int32_t* table = step.block_table + step.sequences[tile.row] * step.table_stride;
    Running<chunks> state[kTileRows][group];
    for (long r = 0; r < tile.rows; ++r)
        for (int g = 0; g < group; ++g) {
            state[r][g].total = _mm512_setzero_ps();
            state[r][g].peak = -INFINITY;
            for (int c = 0; c < chunks * 4; ++c) state[r][g].sum[c] = _mm512_setzero_ps();
        }
    const long last = step.positions[tile.row + tile.rows - 1];
    // Strips begin at the same positions for every row, so that where a tile begins changes no bits.
    const long begin = heads.oldest(step.positions[tile.row]) / (kStrip * kLanes) * (kStrip * kLanes);
    for (long first = begin; first <= last; first += kStrip * kLanes) {
        Strip strip;
        for (long b = 0; b < kStrip; ++b) {
            const long position = std::min(first + b * kLanes, last);
            const long at = (table[position / kLanes] * heads.kv + kv_head) * size * kLanes;
            strip.keys[b] = cache.keys + at;
            strip.values[b] = cache.values + at;
        }
        for (long r = 0; r < tile.rows; ++r) {
            const long position = step.positions[tile.row + r];
            const long seen = position + 1 - first, hidden = heads.oldest(position) - first;
            const float* q = qkv + (tile.row + r) * heads.width() + head * size;
            if (seen > 0 && hidden < kStrip * kLanes) fold<group, chunks>(q, strip, size, seen, hidden, state[r]);
        }
    }
    for (long r = 0; r < tile.rows; ++r)
        for (int g = 0; g < group; ++g) {
            const __m512 inverse = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(state[r][g].total));
            float* to = out + ((tile.row + r) * heads.query + head + g) * size;
            for (int c = 0; c < chunks * 4; ++c)
                _mm512_storeu_ps(to + c * 16, _mm512_mul_ps(state[r][g].sum[c], inverse));
        }
}

template <int chunks>
void attend_group(const Heads& heads, const Cache& cache, const Step& step, const Tile& tile, long kv_head,
                  const float* qkv, float* out) {
    const long group = heads.query / heads.kv;
    long head = kv_head * group;
    const long end = head + group;
    for (; head + 4 <= end; head += 4) attend<4, chunks>(heads, cache, step, tile, head, qkv, out);
    switch (end - head) {
        case 3: return attend<3, chunks>(heads, cache, step, tile, head, qkv, out);
        case 2: return attend<2, chunks>(heads, cache, step, tile, head, qkv, out);
        case 1: return attend<1, chunks>(heads, cache, step, tile, head, qkv, out);
        default: return;
    }
}

std::vector<Tile> cut(const Step& step) {
    std::vector<Tile> tiles;
    for (long row = 0; row < step.rows; ++row) {
        if (tiles.empty() || tiles.back().rows == kTileRows || step.sequences[row] != step.sequences[row - 1])
            tiles.push_back({row, 0});
        ++tiles.back().rows;
    }
    return tiles;
}

}  // namespace
