// y = (x_int8 . w_int8) * row scale * column scale + bias, for a few rows at a time (decode).
// Activations are quantised per row, weights per output; sums are integers, so a row's result never depends on its
// neighbours or on the number of threads. |x|, |w| <= 127 keeps the 16-bit pair sums of vpmaddubsw from saturating.
#include <immintrin.h>

#include <cmath>
#include <cstdint>

namespace {

constexpr int kRows = 4;
constexpr int kColumns = 2;
constexpr long kBlockRows = 32;

inline int horizontal_sum(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
}

inline __m256i multiply_add(__m256i x_abs, __m256i x, __m256i w, __m256i sum) {
    const __m256i pairs = _mm256_maddubs_epi16(x_abs, _mm256_sign_epi8(w, x));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

// Dot products of `columns` neighbouring weight rows with `count` activation rows; out is [columns][kRows].
template <int columns, int count>
inline void dots(const int8_t* x, const int8_t* w, long k, int (*out)[kRows]) {
    __m256i sums[columns][count];
    for (int c = 0; c < columns; ++c)
        for (int m = 0; m < count; ++m) sums[c][m] = _mm256_setzero_si256();
    for (long i = 0; i < k; i += 32) {
        __m256i weights[columns];
        for (int c = 0; c < columns; ++c)
            weights[c] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + c * k + i));
        for (int m = 0; m < count; ++m) {
            const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + m * k + i));
            const __m256i magnitude = _mm256_abs_epi8(value);
            for (int c = 0; c < columns; ++c)
                sums[c][m] = multiply_add(magnitude, value, weights[c], sums[c][m]);
        }
    }
    for (int c = 0; c < columns; ++c)
        for (int m = 0; m < count; ++m) out[c][m] = horizontal_sum(sums[c][m]);
}

template <int columns>
inline void dots(const int8_t* x, const int8_t* w, long k, int count, int (*out)[kRows]) {
    if (count == 4) dots<columns, 4>(x, w, k, out);
    else if (count == 3) dots<columns, 3>(x, w, k, out);
    else if (count == 2) dots<columns, 2>(x, w, k, out);
    else dots<columns, 1>(x, w, k, out);
}

void quantise_row(const float* x, int8_t* q, float* scale, long k) {
    float largest = 0.0f;
    for (long i = 0; i < k; ++i) largest = std::fmax(largest, std::fabs(x[i]));
    *scale = largest / 127.0f;
    const float inverse = largest > 0.0f ? 127.0f / largest : 0.0f;
    for (long i = 0; i < k; ++i) q[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
}

}  // namespace

// x [m, k] float, w [n, k] int8 with k a multiple of 32; q [m, k] and x_scales [m] are scratch.
extern "C" void breakeven_int8_linear(const float* x, const int8_t* w, const float* w_scales, const float* bias,
                                      float* y, int8_t* q, float* x_scales, long m, long k, long n, int threads) {
    if (m == 1) {
        // One answer decoding: weight rows stream past a single activation row, and nothing is worth sharing.
        quantise_row(x, q, x_scales, k);
        const float x_scale = x_scales[0];
#pragma omp parallel for schedule(static) num_threads(threads)
        for (long column = 0; column < n; ++column) {
            int sums[1][kRows];
            dots<1, 1>(q, w + column * k, k, sums);
            y[column] = static_cast<float>(sums[0][0]) * (x_scale * w_scales[column]) + (bias ? bias[column] : 0.0f);
        }
        return;
    }
#pragma omp parallel num_threads(threads)
    {
#pragma omp for schedule(static)
        for (long row = 0; row < m; ++row) quantise_row(x + row * k, q + row * k, x_scales + row, k);
        // Blocks of rows stay in the first-level cache while every weight row passes over them.
        for (long block = 0; block < m; block += kBlockRows) {
            const long end = m - block < kBlockRows ? m : block + kBlockRows;
#pragma omp for schedule(static) nowait
            for (long column = 0; column < n; column += kColumns) {
                const int columns = static_cast<int>(n - column < kColumns ? n - column : kColumns);
                int sums[kColumns][kRows];
                for (long row = block; row < end; row += kRows) {
                    const int count = static_cast<int>(end - row < kRows ? end - row : kRows);
                    const int8_t* rows = q + row * k;
                    const int8_t* weights = w + column * k;
                    if (columns == kColumns) dots<kColumns>(rows, weights, k, count, sums);
                    else dots<1>(rows, weights, k, count, sums);
                    for (int c = 0; c < columns; ++c)
                        for (int i = 0; i < count; ++i)
                            y[(row + i) * n + column + c] =
                                static_cast<float>(sums[c][i]) * (x_scales[row + i] * w_scales[column + c]) +
                                (bias ? bias[column + c] : 0.0f);
                }
            }
        }
    }
}
