/* MLA paged decode, plainly: for each sequence and head all logits, then their softmax, then the weighted sum.
 *
 * The usual start of a run. Nothing is blocked, nothing reused: every key is converted from bf16 again for each of
 * the 16 heads and for each of its two uses, and without -ffast-math the dot products stay scalar.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 16, CKV = 512, KPE = 64 };

static float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

static uint16_t to_bf16(float value) /* round to nearest, ties to even; no NaN comes here */
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static float logit(const uint16_t *q_nope, const uint16_t *q_pe, const uint16_t *ckv, const uint16_t *kpe)
{
    float sum = 0;
    for (int d = 0; d < CKV; d++)
        sum += from_bf16(q_nope[d]) * from_bf16(ckv[d]);
    for (int d = 0; d < KPE; d++)
        sum += from_bf16(q_pe[d]) * from_bf16(kpe[d]);
    return sum;
}

static void attend(const uint16_t *q_nope, const uint16_t *q_pe, const uint16_t *ckv, const uint16_t *kpe,
                   const int32_t *pages, int count, float scale_log2, float *logits, uint16_t *output, float *lse)
{
    float highest = -INFINITY, total = 0, sums[CKV] = {0};
    for (int t = 0; t < count; t++) {
        int64_t page = pages[t];
        logits[t] = scale_log2 * logit(q_nope, q_pe, ckv + page * CKV, kpe + page * KPE);
        highest = fmaxf(highest, logits[t]);
    }
    for (int t = 0; t < count; t++) {
        const uint16_t *value = ckv + (int64_t)pages[t] * CKV;
        float weight = exp2f(logits[t] - highest);
        total += weight;
        for (int d = 0; d < CKV; d++)
            sums[d] += weight * from_bf16(value[d]);
    }
    for (int d = 0; d < CKV; d++)
        output[d] = to_bf16(count ? sums[d] / total : 0);
    *lse = count ? highest + log2f(total) : -INFINITY;
}

void mla_paged_decode(const uint16_t *q_nope, const uint16_t *q_pe, const uint16_t *ckv, const uint16_t *kpe,
                      const int32_t *indptr, const int32_t *indices, float sm_scale, int batch, uint16_t *output,
                      float *lse)
{
    const float log2_e = 1.44269504f;
    for (int b = 0; b < batch; b++) {
        int count = indptr[b + 1] - indptr[b];
        float *logits = malloc(sizeof(float) * (count + 1));
        for (int h = 0; h < HEADS; h++) {
            int64_t row = (int64_t)b * HEADS + h;
            attend(q_nope + row * CKV, q_pe + row * KPE, ckv, kpe, indices + indptr[b], count, sm_scale * log2_e,
                   logits, output + row * CKV, lse + row);
        }
        free(logits);
    }
}
