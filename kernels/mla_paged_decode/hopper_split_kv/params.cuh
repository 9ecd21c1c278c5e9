// What the host passes to a launch.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

struct Params {
  const char *q_nope, *q_pe, *ckv_cache, *kpe_cache;
  const int *kv_indptr, *kv_indices;
  char* output;
  float* lse;
  uint4* slot_values;
  uint32_t* slot_sums;
  uint32_t* counters;  // one for each sequence, for Arrival::kCounted
  uint32_t q_nope_batch_stride, q_nope_head_stride, q_pe_batch_stride, q_pe_head_stride;  // bytes
  uint32_t ckv_page_stride, kpe_page_stride;                                              // bytes
  int sequences, group_shift, heads;
  float logit_scale;  // sm_scale * log2(e): exponentials are powers of two
  // The first kv_indices that CTA i probably needs: from warm_from + i * warm_step, warm_count of them. They are
  // fetched while kv_indptr is on its way.
  int num_indices, warm_count;
  float warm_from, warm_step;
  int indices_fit;  // kv_indices begin at a multiple of 16 bytes and fit the room that cluster.cuh has for them
};

constexpr int kHeads = 16;       // of a group: rows of one mma
constexpr int kRowBytes = 1152;  // 512 + 64 bf16; a multiple of 128, so that rows begin at bank 0
