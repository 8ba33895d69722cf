// Attention over a paged float32 cache with keys transposed within their blocks, so that 16 scores are one vector. A
// row iterates over its keys in strips of 32 from the first on: its bits depend only on its own position.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lanes.h"

namespace {

constexpr long kTileRows = 8;  // rows of one sequence that share a pass over its keys
constexpr int kStrip = 2;      // cache blocks that share a softmax step; two fit the L1 cache

struct Cache {
    float* keys;    // [blocks][kv_heads][head_size][16]
    float* values;  // [blocks][kv_heads][16][head_size]
};

struct Heads {
    long query, kv, size;
    long window;  // the layer's

    // The first key visible to a row.
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

// Online softmax of one query head.
template <int chunks>
struct Running {
    Floats total;
    float peak;
    Floats sum[chunks * 4];
};

// One KV head's part of the blocks in a strip.
struct Strip {
    const float *keys[kStrip], *values[kStrip];
};

// How many vectors per head of a group are accumulated in one pass: as many as fit registers, up to `most`.
constexpr int at_once(int group, int most) {
    while (most > 1 && group * most > kAccumulators) most /= 2;
    return most;
}

// Scores of `blocks` blocks of a strip, from `first` on.
template <int group, int blocks>
inline void score(const float* q, const Strip& strip, int first, long size, Floats (&scores)[group][kStrip]) {
    Floats sums[group][blocks];
    UNROLL
    for (int g = 0; g < group; ++g)
        UNROLL
        for (int b = 0; b < blocks; ++b) sums[g][b] = every(0.0f);
    for (long d = 0; d < size; ++d) {
        Floats keys[blocks];
        UNROLL
        for (int b = 0; b < blocks; ++b) keys[b] = load(strip.keys[first + b] + d * kLanes);
        UNROLL
        for (int g = 0; g < group; ++g) {
            const Floats query = every(q[g * size + d]);
            UNROLL
            for (int b = 0; b < blocks; ++b) sums[g][b] = multiply_add(query, keys[b], sums[g][b]);
        }
    }
    UNROLL
    for (int g = 0; g < group; ++g)
        UNROLL
        for (int b = 0; b < blocks; ++b) scores[g][first + b] = sums[g][b];
}

// Adds weights . values to the running sums, a few columns at a time.
template <int group, int chunks>
inline void gather(const Strip& strip, const float (&weights)[group][kStrip * kLanes], long size, long seen,
                   Running<chunks>* state) {
    constexpr int columns = at_once(group, 4);
    UNROLL
    for (int c = 0; c < chunks * 4; c += columns) {
        Floats sums[group][columns];
        UNROLL
        for (int g = 0; g < group; ++g)
            UNROLL
            for (int d = 0; d < columns; ++d) sums[g][d] = state[g].sum[c + d];
        for (long first = 0; first < seen; first += kLanes) {
            const float* values = strip.values[first / kLanes] + c * kLanes;
            const long slots = std::min(seen - first, kLanes);
            for (long slot = 0; slot < slots; ++slot)
                UNROLL
                for (int d = 0; d < columns; ++d) {
                    const Floats value = load(values + slot * size + d * kLanes);
                    UNROLL
                    for (int g = 0; g < group; ++g)
                        sums[g][d] = multiply_add(every(weights[g][first + slot]), value, sums[g][d]);
                }
        }
        UNROLL
        for (int g = 0; g < group; ++g)
            UNROLL
            for (int d = 0; d < columns; ++d) state[g].sum[c + d] = sums[g][d];
    }
}

// Folds the first `seen` keys of a strip (at most 32), without the first `hidden` of them, into the online softmax of
// `group` heads.
template <int group, int chunks>
inline void fold(const float* q, const Strip& strip, long size, long seen, long hidden, Running<chunks>* state) {
    Floats scores[group][kStrip];
    if (seen <= kLanes) {
        score<group, 1>(q, strip, 0, size, scores);
        UNROLL
        for (int g = 0; g < group; ++g) scores[g][1] = every(-INFINITY);
    } else {
        constexpr int blocks = at_once(group, kStrip);
        UNROLL
        for (int b = 0; b < kStrip; b += blocks) score<group, blocks>(q, strip, b, size, scores);
    }
    alignas(64) float weights[group][kStrip * kLanes];
    Mask visible[kStrip];
    UNROLL
    for (int b = 0; b < kStrip; ++b)
        visible[b] = without(first_lanes(std::max(0L, seen - b * kLanes)), first_lanes(std::max(0L, hidden - b * kLanes)));
    UNROLL
    for (int g = 0; g < group; ++g) {
        Running<chunks>& s = state[g];
        Floats masked[kStrip];
        UNROLL
        for (int b = 0; b < kStrip; ++b) masked[b] = select(visible[b], scores[g][b], every(-INFINITY));
        const float peak = largest(max(masked[0], masked[1]));
        if (peak > s.peak) {
            const Floats keep = exp(every(s.peak - peak));
            s.total = s.total * keep;
            UNROLL
            for (int c = 0; c < chunks * 4; ++c) s.sum[c] = s.sum[c] * keep;
            s.peak = peak;
        }
        UNROLL
        for (int b = 0; b < kStrip; ++b) {
            const Floats weight = select(visible[b], exp(masked[b] - every(s.peak)), every(0.0f));
            s.total = s.total + weight;
            store(weights[g] + b * kLanes, weight);
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
            state[r][g].total = every(0.0f);
            state[r][g].peak = -INFINITY;
            for (int c = 0; c < chunks * 4; ++c) state[r][g].sum[c] = every(0.0f);
        }
    const long last = step.positions[tile.row + tile.rows - 1];
    // Strips begin at the same positions for every row, so that the beginning of a tile does not affect results.
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
            const Floats inverse = every(1.0f / total(state[r][g].total));
            float* to = out + ((tile.row + r) * heads.query + head + g) * size;
            for (int c = 0; c < chunks * 4; ++c) store(to + c * kLanes, state[r][g].sum[c] * inverse);
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
