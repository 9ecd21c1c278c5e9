/* MLA paged decode in blocks of keys with an online softmax, for one thread with wide vectors.
 *
 * A block of 32 keys is converted from bf16 once and then serves all 16 heads twice, as keys and as values.
 * 32 keys * 576 dimensions * 4 bytes = 74 KB and 16 queries * 576 * 4 = 37 KB stay in the second-level cache.
 *   logits   tiles of 4 heads x 4 keys: 16 accumulators, 8 loads for 16 multiply-adds
 *   values   tiles of 8 heads x 2 vectors of dimensions: 16 accumulators, the weights broadcast
 * A vector is 16 floats: one AVX-512 register, or two of AVX2, which the compiler splits.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { HEADS = 16, CKV = 512, KPE = 64, DIM = CKV + KPE, BLOCK = 32, LANES = 16, VECTORS = DIM / LANES };

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef uint32_t bits32 __attribute__((vector_size(LANES * 4)));
typedef uint16_t bits16 __attribute__((vector_size(LANES * 2)));

static vec keys[BLOCK][VECTORS];
static vec queries[HEADS][VECTORS];
static vec sums[HEADS][CKV / LANES];
static float weights[HEADS][BLOCK];

static inline vec widen(const uint16_t *source)
{
    bits16 narrow;
    memcpy(&narrow, source, sizeof narrow);
    return (vec)(__builtin_convertvector(narrow, bits32) << 16);
}

static inline void narrow(vec value, uint16_t *target) /* round to nearest, ties to even */
{
    bits32 bits = (bits32)value;
    bits16 out = __builtin_convertvector((bits + 0x7fff + ((bits >> 16) & 1)) >> 16, bits16);
    memcpy(target, &out, sizeof out);
}

static inline float add_lanes(vec v)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += v[i];
    return sum;
}

static void load_row(vec *row, const uint16_t *nope, const uint16_t *pe, float scale)
{
    for (int v = 0; v < CKV / LANES; v++)
        row[v] = widen(nope + v * LANES) * scale;
    for (int v = 0; v < KPE / LANES; v++)
        row[CKV / LANES + v] = widen(pe + v * LANES) * scale;
}

static void logits(void) /* all tiles; keys beyond the end of the sequence are zero rows */
{
    for (int t = 0; t < BLOCK; t += 4)
        for (int h = 0; h < HEADS; h += 4) {
            vec tile[4][4] = {0};
            for (int v = 0; v < VECTORS; v++)
                for (int i = 0; i < 4; i++)
                    for (int j = 0; j < 4; j++)
                        tile[i][j] += queries[h + i][v] * keys[t + j][v];
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    weights[h + i][t + j] = add_lanes(tile[i][j]);
        }
}

static void softmax(int count, float *highest, float *total, float *shrink)
{
    for (int h = 0; h < HEADS; h++) {
        float top = highest[h], sum = 0;
        for (int t = 0; t < count; t++)
            top = fmaxf(top, weights[h][t]);
        for (int t = 0; t < BLOCK; t++) {
            weights[h][t] = t < count ? exp2f(weights[h][t] - top) : 0;
            sum += weights[h][t];
        }
        shrink[h] = exp2f(highest[h] - top);
        total[h] = total[h] * shrink[h] + sum;
        highest[h] = top;
    }
}

static void add_values(int count, const float *shrink)
{
    for (int v = 0; v < CKV / LANES; v += 2)
        for (int h = 0; h < HEADS; h += 8) {
            vec tile[8][2];
            for (int i = 0; i < 8; i++)
                for (int j = 0; j < 2; j++)
                    tile[i][j] = sums[h + i][v + j] * shrink[h + i];
            for (int t = 0; t < count; t++)
                for (int i = 0; i < 8; i++)
                    for (int j = 0; j < 2; j++)
                        tile[i][j] += weights[h + i][t] * keys[t][v + j];
            for (int i = 0; i < 8; i++)
                for (int j = 0; j < 2; j++)
                    sums[h + i][v + j] = tile[i][j];
        }
}

static void attend(const uint16_t *ckv, const uint16_t *kpe, const int32_t *pages, int count, uint16_t *output,
                   float *lse)
{
    float highest[HEADS], total[HEADS] = {0}, shrink[HEADS];
    for (int h = 0; h < HEADS; h++)
        highest[h] = -INFINITY;
    memset(sums, 0, sizeof sums);
    for (int begin = 0; begin < count; begin += BLOCK) {
        int here = count - begin < BLOCK ? count - begin : BLOCK;
        for (int t = 0; t < here; t++) {
            int64_t page = pages[begin + t];
            load_row(keys[t], ckv + page * CKV, kpe + page * KPE, 1);
        }
        memset(keys + here, 0, sizeof keys[0] * (BLOCK - here));
        logits();
        softmax(here, highest, total, shrink);
        add_values(here, shrink);
    }
    for (int h = 0; h < HEADS; h++) {
        for (int v = 0; v < CKV / LANES; v++)
            narrow(count ? sums[h][v] / total[h] : sums[h][v], output + h * CKV + v * LANES);
        lse[h] = count ? highest[h] + log2f(total[h]) : -INFINITY;
    }
}

void mla_paged_decode(const uint16_t *q_nope, const uint16_t *q_pe, const uint16_t *ckv, const uint16_t *kpe,
                      const int32_t *indptr, const int32_t *indices, float sm_scale, int batch, uint16_t *output,
                      float *lse)
{
    const float log2_e = 1.44269504f;
    for (int b = 0; b < batch; b++) {
        int64_t row = (int64_t)b * HEADS;
        for (int h = 0; h < HEADS; h++)
            load_row(queries[h], q_nope + (row + h) * CKV, q_pe + (row + h) * KPE, sm_scale * log2_e);
        attend(ckv, kpe, indices + indptr[b], indptr[b + 1] - indptr[b], output + row * CKV, lse + row);
    }
}
