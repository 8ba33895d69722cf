// The forward pass of an int8 decoder over a paged KV cache: one call computes all layers for all rows of a step.
// Weights are int8 per output, activations int8 per row, sums are integers; everything else is float32 and computed
// row by row in an order that depends on the row's own position alone. So a row's bits depend neither on its
// neighbours, nor on how its prompt was cut into steps, nor on the number of threads.
// Needs AVX-512 with VNNI. Knows nothing of torch or Python.
#include <immintrin.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

// Arrays of vectors stay in registers only where every loop over them is unrolled, the last one included.
#define UNROLL _Pragma("GCC unroll 16")

namespace {

constexpr long kLanes = 16;      // columns of a panel, and tokens of a cache block
constexpr long kTileRows = 8;    // rows of one sequence that share a pass over its keys
constexpr int kMaxTileRows = 6;  // rows of activations held in registers by a product
constexpr int kMaxPanels = 4;

// Panels of 16 outputs, each [k / 4][16][4], stored as w + 128 because vpdpbusd takes one unsigned operand.
struct Matrix {
    const uint8_t* packed;
    const float* scales;  // padded to whole panels, as is bias
    const float* bias;    // may be null
    long k, n;
};

struct Layer {
    Matrix qkv, output, gate_up, down;
    const float *input_norm, *feed_forward_norm;
    const float *query_norm, *key_norm;  // null but for Qwen3
    float* keys;                         // [blocks][kv_heads][head_size][16]
    float* values;                       // [blocks][kv_heads][16][head_size]
};

struct Model {
    const Layer* layers;
    long layer_count, hidden, intermediate, heads, kv_heads, head_size;
    float epsilon;
    const float *cos, *sin;  // [positions][head_size / 2]
    long threads;
};

struct Step {
    long rows;
    const int32_t* positions;  // of each row
    const int32_t* sequences;  // of each row, an index into block_table
    const int32_t* block_table;
    long table_stride;
};

// Spins a little, since phases are microseconds long, then lets others run.
class Barrier {
  public:
    explicit Barrier(int count) : count_(count) {}
    void wait() {
        const int phase = phase_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
            arrived_.store(0, std::memory_order_relaxed);
            phase_.store(phase + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; phase_.load(std::memory_order_acquire) == phase; ++spins) {
            if (spins < 2000) _mm_pause();
            else sched_yield();
        }
    }

  private:
    const int count_;
    std::atomic<int> arrived_{0}, phase_{0};
};

struct Quantised {
    int8_t* values;
    float* scales;
    int32_t* sums;
};

struct Range {
    long begin, end;
};

Range share(long items, long thread, long threads) { return {items * thread / threads, items * (thread + 1) / threads}; }

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

inline __mmask16 first_lanes(long count) { return count >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << count) - 1); }

// One row to int8 with its scale and the sum of its values.
void quantise(const float* x, long k, const Quantised& out, long row) {
    __m512 peak = _mm512_setzero_ps();
    for (long i = 0; i < k; i += 16)
        peak = _mm512_max_ps(peak, _mm512_abs_ps(_mm512_maskz_loadu_ps(first_lanes(k - i), x + i)));
    const float largest = _mm512_reduce_max_ps(peak);
    const __m512 inverse = _mm512_set1_ps(largest > 0.0f ? 127.0f / largest : 0.0f);
    __m512i sum = _mm512_setzero_si512();
    for (long i = 0; i < k; i += 16) {
        const __mmask16 mask = first_lanes(k - i);
        const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse));
        sum = _mm512_add_epi32(sum, q);
        _mm_mask_storeu_epi8(out.values + row * k + i, mask, _mm512_cvtepi32_epi8(q));
    }
    out.scales[row] = largest / 127.0f;
    out.sums[row] = _mm512_reduce_add_epi32(sum);
}

inline float inverse_rms(const float* x, long n, float epsilon) {
    __m512 sum = _mm512_setzero_ps();
    for (long i = 0; i < n; i += 16) {
        const __m512 v = _mm512_maskz_loadu_ps(first_lanes(n - i), x + i);
        sum = _mm512_fmadd_ps(v, v, sum);
    }
    return 1.0f / std::sqrt(_mm512_reduce_add_ps(sum) / static_cast<float>(n) + epsilon);
}

void normalise(const float* x, const float* weight, float* out, long n, float epsilon) {
    const __m512 inverse = _mm512_set1_ps(inverse_rms(x, n, epsilon));
    for (long i = 0; i < n; i += 16) {
        const __mmask16 mask = first_lanes(n - i);
        const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), inverse);
        _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(mask, weight + i)));
    }
}

// sums += unsigned . signed, four bytes a lane. As assembly, because GCC 12 copies and spills the intrinsic's operand.
inline void add_dots(__m512i& sums, __m512i weights, __m512i activations) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(weights), "v"(activations));
}

template <int rows, int panels>
inline void product_tile(const Quantised& x, long row, const Matrix& w, long panel, float* y, bool adds) {
    const long k = w.k;
    const int8_t* activations = x.values + row * k;
    const uint8_t* weights = w.packed + panel * k * kLanes;
    __m512i sums[rows][panels];
    UNROLL
    for (int r = 0; r < rows; ++r)
        UNROLL
        for (int p = 0; p < panels; ++p) sums[r][p] = _mm512_setzero_si512();
    for (long i = 0; i < k; i += 4) {
        __m512i b[panels];
        UNROLL
        for (int p = 0; p < panels; ++p) {
            b[p] = _mm512_loadu_si512(weights + (p * k + i) * kLanes);
            // The first rows read weights from memory, and a panel ends before the hardware has learnt its stream.
            if (row == 0) _mm_prefetch(weights + ((p + panels) * k + i) * kLanes, _MM_HINT_T1);
        }
        UNROLL
        for (int r = 0; r < rows; ++r) {
            int32_t four;
            std::memcpy(&four, activations + r * k + i, 4);
            const __m512i a = _mm512_set1_epi32(four);
            UNROLL
            for (int p = 0; p < panels; ++p) add_dots(sums[r][p], b[p], a);
        }
    }
    UNROLL
    for (int p = 0; p < panels; ++p) {
        const long column = (panel + p) * kLanes;
        const __mmask16 mask = first_lanes(w.n - column);
        const __m512 scales = _mm512_loadu_ps(w.scales + column);
        const __m512 bias = w.bias ? _mm512_loadu_ps(w.bias + column) : _mm512_setzero_ps();
        UNROLL
        for (int r = 0; r < rows; ++r) {
            const __m512i sum = _mm512_sub_epi32(sums[r][p], _mm512_set1_epi32(128 * x.sums[row + r]));
            const __m512 scale = _mm512_mul_ps(_mm512_set1_ps(x.scales[row + r]), scales);
            float* at = y + (row + r) * w.n + column;
            const __m512 before = adds ? _mm512_add_ps(_mm512_maskz_loadu_ps(mask, at), bias) : bias;
            _mm512_mask_storeu_ps(at, mask, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, before));
        }
    }
}

template <int panels>
inline void product_rows(const Quantised& x, long rows, const Matrix& w, long panel, float* y, bool adds) {
    long row = 0;
    for (; row + kMaxTileRows <= rows; row += kMaxTileRows) product_tile<6, panels>(x, row, w, panel, y, adds);
    switch (rows - row) {
        case 5: return product_tile<5, panels>(x, row, w, panel, y, adds);
        case 4: return product_tile<4, panels>(x, row, w, panel, y, adds);
        case 3: return product_tile<3, panels>(x, row, w, panel, y, adds);
        case 2: return product_tile<2, panels>(x, row, w, panel, y, adds);
        case 1: return product_tile<1, panels>(x, row, w, panel, y, adds);
        default: return;
    }
}

// y [rows, n] = or += x . w; each thread takes its share of the outputs.
void product(const Quantised& x, long rows, const Matrix& w, float* y, bool adds, long thread, long threads) {
    const Range mine = share((w.n + kLanes - 1) / kLanes, thread, threads);
    long panel = mine.begin;
    for (; panel + kMaxPanels <= mine.end; panel += kMaxPanels) product_rows<4>(x, rows, w, panel, y, adds);
    switch (mine.end - panel) {
        case 3: return product_rows<3>(x, rows, w, panel, y, adds);
        case 2: return product_rows<2>(x, rows, w, panel, y, adds);
        case 1: return product_rows<1>(x, rows, w, panel, y, adds);
        default: return;
    }
}

// Rotates one head in place, halves side by side; the result times `scale`.
void rotate(float* head, long size, const float* cos, const float* sin, float scale) {
    for (long i = 0; i < size / 2; ++i) {
        const float a = head[i], b = head[i + size / 2];
        head[i] = (a * cos[i] - b * sin[i]) * scale;
        head[i + size / 2] = (b * cos[i] + a * sin[i]) * scale;
    }
}

// Head norms and rotation of one row's queries and keys, and its key and value into their slot.
void place(const Model& model, const Layer& layer, const Step& step, long row, float* qkv) {
    const long size = model.head_size, position = step.positions[row];
    const float* cos = model.cos + position * (size / 2);
    const float* sin = model.sin + position * (size / 2);
    const float scale = 1.0f / std::sqrt(static_cast<float>(size));
    for (long head = 0; head < model.heads + model.kv_heads; ++head) {
        const bool is_query = head < model.heads;
        const float* norm = is_query ? layer.query_norm : layer.key_norm;
        if (norm) normalise(qkv + head * size, norm, qkv + head * size, size, model.epsilon);
        rotate(qkv + head * size, size, cos, sin, is_query ? scale : 1.0f);
    }
    const long block = step.block_table[step.sequences[row] * step.table_stride + position / kLanes];
    const long slot = position % kLanes;
    for (long head = 0; head < model.kv_heads; ++head) {
        const float* key = qkv + (model.heads + head) * size;
        const float* value = key + model.kv_heads * size;
        float* keys = layer.keys + (block * model.kv_heads + head) * size * kLanes;
        for (long i = 0; i < size; ++i) keys[i * kLanes + slot] = key[i];
        float* values = layer.values + ((block * model.kv_heads + head) * kLanes + slot) * size;
        std::memcpy(values, value, size * sizeof(float));
    }
}

// Running softmax of one query head over blocks of 16 keys, from the first to the row's own.
template <int chunks>
struct Running {
    __m512 total;
    float peak;
    __m512 sum[chunks * 4];
};

// Scores of `group` heads against one block; four partial sums each, so that their latencies overlap.
template <int group>
inline void score(const float* q, const float* keys, long size, __m512* scores) {
    __m512 parts[group][4];
    UNROLL
    for (int g = 0; g < group; ++g)
        UNROLL
        for (int p = 0; p < 4; ++p) parts[g][p] = _mm512_setzero_ps();
    for (long d = 0; d < size; d += 4)
        UNROLL
        for (int p = 0; p < 4; ++p) {
            const __m512 key = _mm512_loadu_ps(keys + (d + p) * kLanes);
            UNROLL
            for (int g = 0; g < group; ++g)
                parts[g][p] = _mm512_fmadd_ps(_mm512_set1_ps(q[g * size + d + p]), key, parts[g][p]);
        }
    UNROLL
    for (int g = 0; g < group; ++g)
        scores[g] = _mm512_add_ps(_mm512_add_ps(parts[g][0], parts[g][1]), _mm512_add_ps(parts[g][2], parts[g][3]));
}

template <int group, int chunks>
inline void fold(const float* q, const float* keys, const float* values, long size, long seen, Running<chunks>* state) {
    __m512 scores[group];
    alignas(64) float weights[group][kLanes];
    score<group>(q, keys, size, scores);
    const __mmask16 mask = first_lanes(seen);
    UNROLL
    for (int g = 0; g < group; ++g) {
        Running<chunks>& s = state[g];
        const __m512 masked = _mm512_mask_blend_ps(mask, _mm512_set1_ps(-INFINITY), scores[g]);
        const float peak = _mm512_reduce_max_ps(masked);
        if (peak > s.peak) {
            const __m512 keep = exp_ps(_mm512_set1_ps(s.peak - peak));
            s.total = _mm512_mul_ps(s.total, keep);
            UNROLL
            for (int c = 0; c < chunks * 4; ++c) s.sum[c] = _mm512_mul_ps(s.sum[c], keep);
            s.peak = peak;
        }
        const __m512 weight = _mm512_maskz_mov_ps(mask, exp_ps(_mm512_sub_ps(masked, _mm512_set1_ps(s.peak))));
        s.total = _mm512_add_ps(s.total, weight);
        _mm512_store_ps(weights[g], weight);
    }
    const long slots = std::min(seen, kLanes);
    UNROLL
    for (int c = 0; c < chunks; ++c) {
        __m512 sums[group][4];
        UNROLL
        for (int g = 0; g < group; ++g)
            UNROLL
            for (int d = 0; d < 4; ++d) sums[g][d] = state[g].sum[c * 4 + d];
        for (long slot = 0; slot < slots; ++slot)
            UNROLL
            for (int d = 0; d < 4; ++d) {
                const __m512 value = _mm512_loadu_ps(values + slot * size + (c * 4 + d) * 16);
                UNROLL
                for (int g = 0; g < group; ++g)
                    sums[g][d] = _mm512_fmadd_ps(_mm512_set1_ps(weights[g][slot]), value, sums[g][d]);
            }
        UNROLL
        for (int g = 0; g < group; ++g)
            UNROLL
            for (int d = 0; d < 4; ++d) state[g].sum[c * 4 + d] = sums[g][d];
    }
}

struct Tile {
    long row, rows;
};

// `group` query heads from `head` on, all of one KV head, for the rows of a tile.
template <int group, int chunks>
void attend(const Model& model, const Layer& layer, const Step& step, const Tile& tile, long head, const float* qkv,
            float* out) {
    const long size = model.head_size, width = (model.heads + 2 * model.kv_heads) * size;
    const long kv_head = head / (model.heads / model.kv_heads);
    const int32_t* table = step.block_table + step.sequences[tile.row] * step.table_stride;
    Running<chunks> state[kTileRows][group];
    for (long r = 0; r < tile.rows; ++r)
        for (int g = 0; g < group; ++g) {
            state[r][g].total = _mm512_setzero_ps();
            state[r][g].peak = -INFINITY;
            for (int c = 0; c < chunks * 4; ++c) state[r][g].sum[c] = _mm512_setzero_ps();
        }
    const long last = step.positions[tile.row + tile.rows - 1];
    for (long first = 0; first <= last; first += kLanes) {
        const long at = table[first / kLanes] * model.kv_heads + kv_head;
        const float* keys = layer.keys + at * size * kLanes;
        const float* values = layer.values + at * size * kLanes;
        for (long r = 0; r < tile.rows; ++r) {
            const long seen = step.positions[tile.row + r] + 1 - first;
            if (seen > 0)
                fold<group, chunks>(qkv + (tile.row + r) * width + head * size, keys, values, size, seen, state[r]);
        }
    }
    for (long r = 0; r < tile.rows; ++r)
        for (int g = 0; g < group; ++g) {
            const __m512 inverse = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(state[r][g].total));
            float* to = out + ((tile.row + r) * model.heads + head + g) * size;
            for (int c = 0; c < chunks * 4; ++c)
                _mm512_storeu_ps(to + c * 16, _mm512_mul_ps(state[r][g].sum[c], inverse));
        }
}

template <int chunks>
void attend_group(const Model& model, const Layer& layer, const Step& step, const Tile& tile, long kv_head,
                  const float* qkv, float* out) {
    const long group = model.heads / model.kv_heads;
    long head = kv_head * group;
    const long end = head + group;
    for (; head + 4 <= end; head += 4) attend<4, chunks>(model, layer, step, tile, head, qkv, out);
    switch (end - head) {
        case 3: return attend<3, chunks>(model, layer, step, tile, head, qkv, out);
        case 2: return attend<2, chunks>(model, layer, step, tile, head, qkv, out);
        case 1: return attend<1, chunks>(model, layer, step, tile, head, qkv, out);
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

void multiply_gated(const float* gate_up, float* out, long n) {
    for (long i = 0; i < n; i += 16) {
        const __mmask16 mask = first_lanes(n - i);
        const __m512 gate = _mm512_maskz_loadu_ps(mask, gate_up + i);
        const __m512 up = _mm512_maskz_loadu_ps(mask, gate_up + n + i);
        const __m512 one = _mm512_set1_ps(1.0f);
        const __m512 sigmoid = _mm512_div_ps(one, _mm512_add_ps(one, exp_ps(_mm512_sub_ps(_mm512_setzero_ps(), gate))));
        _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(_mm512_mul_ps(gate, sigmoid), up));
    }
}

// Memory between phases, kept from step to step.
struct Workspace {
    std::vector<float> qkv, attended, gate_up, scales, row;
    std::vector<int8_t> values;
    std::vector<int32_t> sums;

    void fit(const Model& model, long rows, long threads) {
        const long attention = model.heads * model.head_size;
        grow(qkv, rows * (attention + 2 * model.kv_heads * model.head_size));
        grow(attended, rows * attention);
        grow(gate_up, rows * 2 * model.intermediate);
        const long widest = std::max({model.hidden, model.intermediate, attention});
        grow(row, threads * widest);
        grow(values, rows * widest);
        grow(scales, rows);
        grow(sums, rows);
    }
    template <class T>
    static void grow(std::vector<T>& memory, long size) {
        if (static_cast<long>(memory.size()) < size) memory.resize(size);
    }
};

void run_layer(const Model& model, const Layer& layer, const Step& step, const std::vector<Tile>& tiles, float* x,
               Workspace& work, Barrier& barrier, long thread, long threads) {
    const long hidden = model.hidden, attention = model.heads * model.head_size;
    const long width = attention + 2 * model.kv_heads * model.head_size;
    const Range rows = share(step.rows, thread, threads);
    const Quantised q{work.values.data(), work.scales.data(), work.sums.data()};
    float* scratch = work.row.data() + thread * std::max({hidden, model.intermediate, attention});
    const auto norm_rows = [&](const float* weight) {
        for (long row = rows.begin; row < rows.end; ++row) {
            normalise(x + row * hidden, weight, scratch, hidden, model.epsilon);
            quantise(scratch, hidden, q, row);
        }
        barrier.wait();
    };
    const auto multiply = [&](const Matrix& w, float* y, bool adds) {
        product(q, step.rows, w, y, adds, thread, threads);
        barrier.wait();
    };
    norm_rows(layer.input_norm);
    multiply(layer.qkv, work.qkv.data(), false);
    for (long row = rows.begin; row < rows.end; ++row) place(model, layer, step, row, work.qkv.data() + row * width);
    barrier.wait();
    const long items = static_cast<long>(tiles.size()) * model.kv_heads;
    for (long item = thread; item < items; item += threads) {
        const Tile& tile = tiles[item / model.kv_heads];
        const long kv_head = item % model.kv_heads;
        if (model.head_size == 64) attend_group<1>(model, layer, step, tile, kv_head, work.qkv.data(), work.attended.data());
        else attend_group<2>(model, layer, step, tile, kv_head, work.qkv.data(), work.attended.data());
    }
    barrier.wait();
    for (long row = rows.begin; row < rows.end; ++row) quantise(work.attended.data() + row * attention, attention, q, row);
    barrier.wait();
    multiply(layer.output, x, true);
    norm_rows(layer.feed_forward_norm);
    multiply(layer.gate_up, work.gate_up.data(), false);
    for (long row = rows.begin; row < rows.end; ++row) {
        multiply_gated(work.gate_up.data() + row * 2 * model.intermediate, scratch, model.intermediate);
        quantise(scratch, model.intermediate, q, row);
    }
    barrier.wait();
    multiply(layer.down, x, true);
}

}  // namespace

// x [rows, hidden]: embeddings in, states after the last layer out. Not to be called by two threads at once.
extern "C" void breakeven_forward(const Model* model, const Step* step, float* x) {
    static Workspace work;
    const std::vector<Tile> tiles = cut(*step);
    const int threads = static_cast<int>(model->threads);
    work.fit(*model, step->rows, threads);
    Barrier* barrier = nullptr;
#pragma omp parallel num_threads(threads)
    {
        const long team = omp_get_num_threads();
#pragma omp single
        barrier = new Barrier(static_cast<int>(team));
        for (long index = 0; index < model->layer_count; ++index)
            run_layer(*model, model->layers[index], *step, tiles, x, work, *barrier, omp_get_thread_num(), team);
    }
    delete barrier;
}

// y [rows, n] = norm(x [rows, k]) . w for the rows that draw a token; `norm` may be null.
extern "C" void breakeven_project(const Matrix* w, const float* norm, float epsilon, const float* x, float* y, long rows,
                                  long threads) {
    std::vector<float> scales(rows), row(w->k);
    std::vector<int8_t> values(rows * w->k);
    std::vector<int32_t> sums(rows);
    const Quantised q{values.data(), scales.data(), sums.data()};
    for (long i = 0; i < rows; ++i) {
        if (norm) normalise(x + i * w->k, norm, row.data(), w->k, epsilon);
        quantise(norm ? row.data() : x + i * w->k, w->k, q, i);
    }
#pragma omp parallel num_threads(static_cast<int>(threads))
    product(q, rows, *w, y, false, omp_get_thread_num(), omp_get_num_threads());
}
