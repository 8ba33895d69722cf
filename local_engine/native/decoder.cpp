// The forward pass of a decoder over a paged KV cache: one call computes all layers for all rows of a step.
// Everything is computed row by row in an order that depends only on the row's own position. So a row's bits depend
// neither on its neighbours, nor on how its prompt was divided into steps, nor on the number of threads.
// Knows nothing of torch or Python, nor of the processor it runs on (lanes.h does).
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "attention.h"
#include "lanes.h"
#include "packing.h"
#include "products.h"
#include "threads.h"

namespace {

struct Expert {
    Matrix gate_up, down;
};

struct Layer {
    Matrix qkv, output, gate_up, down;
    Matrix router;          // of the experts, if there are any
    const Expert* experts;  // null for a plain feed-forward part
    // Before attention and the feed-forward part, and after each; null where a family has none.
    const float *input_norm, *feed_forward_norm, *attention_norm, *end_norm;
    const float *query_norm, *key_norm;  // per head or across all heads; may be null
    const float *cos, *sin;              // [positions][head_size / 2]; null without rotation
    long window;                         // keys visible to a row, including its own; 0 for all
    Cache cache;
};

// With few rows all experts are computed together, with many one after another, so that results stay in the cache.
constexpr long kRowsTogether = 64;

struct Model {
    const Layer* layers;
    long layer_count, hidden, intermediate;
    long experts, experts_used, expert_size, shares_add_up;
    long is_gelu, norms_all_heads;
    Heads heads;
    float epsilon, attention_scale;  // attention_scale 0 means 1/sqrt(head size)
    long threads;

    long attention() const { return heads.query * heads.size; }
    long wide() const { return std::max(intermediate, expert_size); }
    long widest() const { return std::max({hidden, wide(), attention()}); }
    // Rows that experts compute between two barriers, counting a row once per expert.
    long rows_together(long rows) const { return std::max(rows, std::min(rows * experts_used, kRowsTogether)); }
};

inline float inverse_rms(const float* x, long n, float epsilon) {
    Floats squares = every(0.0f);
    for (long i = 0; i < n; i += kLanes) {
        const Floats v = load(x + i, first_lanes(n - i));
        squares = multiply_add(v, v, squares);
    }
    return 1.0f / std::sqrt(total(squares) / static_cast<float>(n) + epsilon);
}

void normalise(const float* x, const float* weight, float* out, long n, float epsilon) {
    const Floats inverse = every(inverse_rms(x, n, epsilon));
    for (long i = 0; i < n; i += kLanes) {
        const Mask mask = first_lanes(n - i);
        store(out + i, load(x + i, mask) * inverse * load(weight + i, mask), mask);
    }
}

// Rotates one head in place, half-split layout, and multiplies it by `scale`.
void rotate(float* head, long size, const float* cos, const float* sin, float scale) {
    for (long i = 0; i < size / 2; ++i) {
        const float a = head[i], b = head[i + size / 2];
        head[i] = (a * cos[i] - b * sin[i]) * scale;
        head[i + size / 2] = (b * cos[i] + a * sin[i]) * scale;
    }
}

// Applies head norms and rotation to one row's queries and keys, and stores its key and value.
void place(const Model& model, const Layer& layer, const Step& step, long row, float* qkv) {
    const Heads& heads = model.heads;
    const long size = heads.size, position = step.positions[row];
    const long at = position * (size / 2);
    const float root = 1.0f / std::sqrt(static_cast<float>(size));
    const float scale = model.attention_scale > 0.0f ? model.attention_scale : root;
    if (model.norms_all_heads) {
        normalise(qkv, layer.query_norm, qkv, heads.query * size, model.epsilon);
        float* keys = qkv + heads.query * size;
        normalise(keys, layer.key_norm, keys, heads.kv * size, model.epsilon);
    }
    for (long head = 0; head < heads.query + heads.kv; ++head) {
        const bool is_query = head < heads.query;
        const float* norm = is_query ? layer.query_norm : layer.key_norm;
        if (norm && !model.norms_all_heads) normalise(qkv + head * size, norm, qkv + head * size, size, model.epsilon);
        const float by = is_query ? scale : 1.0f;
        if (layer.cos) rotate(qkv + head * size, size, layer.cos + at, layer.sin + at, by);
        else if (is_query) for (long i = 0; i < size; ++i) qkv[head * size + i] *= by;
    }
    const long block = step.block_table[step.sequences[row] * step.table_stride + position / kLanes];
    const long slot = position % kLanes;
    for (long head = 0; head < heads.kv; ++head) {
        const float* key = qkv + (heads.query + head) * size;
        const float* value = key + heads.kv * size;
        float* keys = layer.cache.keys + (block * heads.kv + head) * size * kLanes;
        for (long i = 0; i < size; ++i) keys[i * kLanes + slot] = key[i];
        float* values = layer.cache.values + ((block * heads.kv + head) * kLanes + slot) * size;
        std::memcpy(values, value, size * sizeof(float));
    }
}

// gelu(x) by the tanh approximation is x times the sigmoid of this; silu(x) is x times the sigmoid of x.
inline Floats gelu_slope(Floats x) {
    const Floats cubic = multiply_add(x * x * x, every(0.044715f), x);
    return cubic * every(1.5957691216057308f);
}

void multiply_gated(const float* gate_up, float* out, long n, bool is_gelu) {
    for (long i = 0; i < n; i += kLanes) {
        const Mask mask = first_lanes(n - i);
        const Floats gate = load(gate_up + i, mask), one = every(1.0f);
        const Floats slope = is_gelu ? gelu_slope(gate) : gate;
        const Floats sigmoid = one / (one + exp(every(0.0f) - slope));
        store(out + i, gate * sigmoid * load(gate_up + n + i, mask), mask);
    }
}

// The most likely experts of a row, the first of equals first, and their weights. Overwrites the logits.
void choose(const Model& model, float* logits, int32_t* chosen, float* shares) {
    const float peak = *std::max_element(logits, logits + model.experts);
    float all = 0.0f, taken = 0.0f;
    for (long e = 0; e < model.experts; ++e) {
        const float weight = std::exp(logits[e] - peak);
        // NaN counts as zero, so that even a broken row selects each expert at most once.
        all += logits[e] = weight >= 0.0f ? weight : 0.0f;
    }
    for (long i = 0; i < model.experts_used; ++i) {
        const long best = std::max_element(logits, logits + model.experts) - logits;
        chosen[i] = static_cast<int32_t>(best);
        taken += shares[i] = logits[best];
        logits[best] = -1.0f;
    }
    const float whole = model.shares_add_up ? taken : all;
    for (long i = 0; i < model.experts_used; ++i) shares[i] /= whole;
}

// A row computed by an expert, and the expert's index among the row's.
struct Taken {
    int32_t expert;
    long row, place;
};

std::vector<Taken> by_expert(const int32_t* chosen, long rows, const Model& model) {
    std::vector<long> begins(model.experts + 1, 0);
    const long count = rows * model.experts_used;
    for (long i = 0; i < count; ++i) ++begins[chosen[i] + 1];
    for (long e = 0; e < model.experts; ++e) begins[e + 1] += begins[e];
    std::vector<Taken> places(count);
    for (long i = 0; i < count; ++i)
        places[begins[chosen[i]]++] = {chosen[i], i / model.experts_used, i % model.experts_used};
    return places;
}

// End of the experts that are computed together: as many as have at most `most` rows in total. One never has more.
long end_of_some(const std::vector<Taken>& places, long first, long most) {
    const long all = static_cast<long>(places.size());
    if (all - first <= most) return all;
    long end = first + most;
    while (places[end - 1].expert == places[end].expert) --end;
    return end;
}

// to += times * from
void add(const float* from, float times, float* to, long n) {
    for (long i = 0; i < n; i += kLanes) {
        const Mask mask = first_lanes(n - i);
        store(to + i, multiply_add(load(from + i, mask), every(times), load(to + i, mask)), mask);
    }
}

// Grows, never shrinks; aligned to a cache line.
template <class T>
class Memory {
  public:
    T* data() const { return begin_.get(); }
    void fit(long size) {
        if (size <= size_) return;
        const size_t bytes = (size * sizeof(T) + 63) / 64 * 64;
        begin_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
        if (!begin_) throw std::bad_alloc();
        size_ = size;
    }

  private:
    struct Free {
        void operator()(T* at) const { std::free(at); }
    };
    std::unique_ptr<T, Free> begin_;
    long size_ = 0;
};

// Memory between phases, reused across steps.
struct Workspace {
    Memory<float> qkv, attended, gate_up, plain, scales, sums, row;
    Memory<float> computed, normed, logits, shares;
    Memory<int32_t> chosen;
    Memory<int8_t> values;
    Memory<uint8_t> unpacked;

    void fit(long rows, long threads, long widest) {
        plain.fit(rows * widest);
        values.fit(rows * widest);
        scales.fit(rows * widest / kBlock);
        sums.fit(rows * widest / kBlock);
        row.fit(threads * widest);
        unpacked.fit(threads * scratch_bytes(widest));
    }
    void fit(const Model& model, long rows) {
        const long together = model.rows_together(rows);
        fit(together, model.threads, model.widest());
        qkv.fit(rows * model.heads.width());
        attended.fit(rows * model.attention());
        gate_up.fit(together * 2 * model.wide());
        computed.fit(together * model.hidden);
        if (!model.experts) return;
        normed.fit(rows * model.hidden);
        logits.fit(rows * model.experts);
        shares.fit(rows * model.experts_used);
        chosen.fit(rows * model.experts_used);
    }
    Activations activations() const { return {plain.data(), values.data(), scales.data(), sums.data()}; }
};

void run_layer(const Model& model, const Layer& layer, const Step& step, const std::vector<Tile>& tiles, float* x,
               Workspace& work, Barrier& barrier, long thread, long threads) {
    const long hidden = model.hidden, attention = model.attention(), width = model.heads.width();
    const Range rows = share(step.rows, thread, threads);
    const Activations taken = work.activations();
    float* scratch = work.row.data() + thread * model.widest();
    uint8_t* unpacked = work.unpacked.data() + thread * scratch_bytes(model.widest());
    float *qkv = work.qkv.data(), *attended = work.attended.data(), *gate_up = work.gate_up.data();
    float* computed = work.computed.data();
    const auto normed = [&](const float* from, const float* weight, float* to) -> const float* {
        if (!weight) return from;
        normalise(from, weight, to, hidden, model.epsilon);
        return to;
    };
    const auto norm_rows = [&](const float* weight, const Matrix& next) {
        for (long row = rows.begin; row < rows.end; ++row)
            take(normed(x + row * hidden, weight, scratch), next, taken, row);
        barrier.wait();
    };
    const auto multiply = [&](const Matrix& w, float* y, bool adds) {
        product(taken, step.rows, w, y, adds, unpacked, thread, threads);
        barrier.wait();
    };
    // The output of a part of the layer is added to x, possibly normed first.
    const auto add_product = [&](const Matrix& w, const float* norm) {
        multiply(w, norm ? computed : x, !norm);
        if (!norm) return;
        for (long row = rows.begin; row < rows.end; ++row)
            add(normed(computed + row * hidden, norm, scratch), 1.0f, x + row * hidden, hidden);
        barrier.wait();
    };
    norm_rows(layer.input_norm, layer.qkv);
    multiply(layer.qkv, qkv, false);
    for (long row = rows.begin; row < rows.end; ++row) place(model, layer, step, row, qkv + row * width);
    barrier.wait();
    Heads heads = model.heads;
    heads.window = layer.window;
    const long items = static_cast<long>(tiles.size()) * model.heads.kv;
    for (long item = thread; item < items; item += threads) {
        const auto run = heads.size == 64 ? attend_group<1> : heads.size == 128 ? attend_group<2> : attend_group<4>;
        run(heads, layer.cache, step, tiles[item / model.heads.kv], item % model.heads.kv, qkv, attended);
    }
    barrier.wait();
    for (long row = rows.begin; row < rows.end; ++row) take(attended + row * attention, layer.output, taken, row);
    barrier.wait();
    add_product(layer.output, layer.attention_norm);
    if (!layer.experts) {
        norm_rows(layer.feed_forward_norm, layer.gate_up);
        multiply(layer.gate_up, gate_up, false);
        for (long row = rows.begin; row < rows.end; ++row) {
            multiply_gated(gate_up + row * 2 * model.intermediate, scratch, model.intermediate, model.is_gelu);
            take(scratch, layer.down, taken, row);
        }
        barrier.wait();
        add_product(layer.down, layer.end_norm);
        return;
    }
    float *logits = work.logits.data(), *shares = work.shares.data(), *states = work.normed.data();
    int32_t* chosen = work.chosen.data();
    const long used = model.experts_used, size = model.expert_size;
    for (long row = rows.begin; row < rows.end; ++row) {
        normalise(x + row * hidden, layer.feed_forward_norm, states + row * hidden, hidden, model.epsilon);
        take(states + row * hidden, layer.router, taken, row);
    }
    barrier.wait();
    multiply(layer.router, logits, false);
    for (long row = rows.begin; row < rows.end; ++row)
        choose(model, logits + row * model.experts, chosen + row * used, shares + row * used);
    barrier.wait();
    // Every thread builds the same list of places, ordered by expert. So a row's experts are summed in a fixed order,
    // independent of other rows.
    const std::vector<Taken> places = by_expert(chosen, step.rows, model);
    const long most = model.rows_together(step.rows), all = static_cast<long>(places.size());
    const long columns = share(hidden / kLanes, thread, threads).begin * kLanes;
    const long width_of_mine = share(hidden / kLanes, thread, threads).end * kLanes - columns;
    for (long first = 0; first < all;) {
        const long last = end_of_some(places, first, most);
        const Taken* at = places.data() + first;
        const Range mine = share(last - first, thread, threads);
        // One product per expert, of its rows, without a barrier in between.
        const auto multiply_each = [&](Matrix Expert::*part, float* y) {
            for (long begin = 0, end; begin < last - first; begin = end) {
                end = begin + 1;
                while (end < last - first && at[end].expert == at[begin].expert) ++end;
                const Matrix& w = layer.experts[at[begin].expert].*part;
                product(rows_from(taken, w, begin), end - begin, w, y + begin * w.n, false, unpacked, thread, threads);
            }
            barrier.wait();
        };
        for (long i = mine.begin; i < mine.end; ++i)
            take(states + at[i].row * hidden, layer.experts[at[i].expert].gate_up, taken, i);
        barrier.wait();
        multiply_each(&Expert::gate_up, gate_up);
        for (long i = mine.begin; i < mine.end; ++i) {
            multiply_gated(gate_up + i * 2 * size, scratch, size, model.is_gelu);
            take(scratch, layer.experts[at[i].expert].down, taken, i);
        }
        barrier.wait();
        multiply_each(&Expert::down, computed);
        // A row may occur several times here, so threads divide the columns.
        for (long i = 0; i < last - first; ++i)
            add(computed + i * hidden + columns, shares[at[i].row * used + at[i].place], x + at[i].row * hidden + columns,
                width_of_mine);
        first = last;
    }
    barrier.wait();
}

}  // namespace

// x [rows, hidden]: embeddings in, states after the last layer out. Must not be called by two threads at once.
extern "C" void breakeven_forward(const Model* model, const Step* step, float* x) {
    static Workspace work;
    work.fit(*model, step->rows);
    const std::vector<Tile> tiles = cut(*step);
    Barrier* barrier = nullptr;
#pragma omp parallel num_threads(static_cast<int>(model->threads))
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
    static Workspace work;
    work.fit(rows, threads, w->k);
    const Activations taken = work.activations();
    for (long i = 0; i < rows; ++i) {
        if (norm) normalise(x + i * w->k, norm, work.row.data(), w->k, epsilon);
        take(norm ? work.row.data() : x + i * w->k, *w, taken, i);
    }
#pragma omp parallel num_threads(static_cast<int>(threads))
    {
        const long thread = omp_get_thread_num(), team = omp_get_num_threads();
        product(taken, rows, *w, y, false, work.unpacked.data() + thread * scratch_bytes(w->k), thread, team);
    }
}

// x [rows, k] = the weights of the outputs named by the tokens, of a matrix kept for float32.
extern "C" void breakeven_embed(const Matrix* w, const int64_t* tokens, float* x, long rows) {
    with_held(*w, [&](auto held) {
        using Kind = FloatOf<decltype(held), 1, 1>;
        for (long row = 0; row < rows; ++row)
            Kind::read_lane(w->packed + tokens[row] / kLanes * Kind::panel_bytes(*w), w->k, tokens[row] % kLanes,
                            x + row * w->k);
    });
}

// packed [panels][blocks], initially zero = w [n, k], float32, quantised to bytes.
extern "C" void breakeven_pack_bytes(const float* w, uint8_t* packed, long k, long n, long threads) {
#pragma omp parallel for num_threads(static_cast<int>(threads)) schedule(static)
    for (long output = 0; output < n; output += kLanes) {
        uint8_t* panel = packed + output / kLanes * (k / kBlock) * kByteBlock;
        round_panel(w + output * k, k, std::min<long>(kLanes, n - output), panel);
    }
}
