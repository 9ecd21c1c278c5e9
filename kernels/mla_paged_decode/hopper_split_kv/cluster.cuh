// Few sequences of few tokens: latency is all that counts here. The CTAs that share a sequence sit in one cluster and
// push their parts straight into the shared memory of the CTA that merges them. Nothing goes through global memory,
// where a part would be seen 2,300 clocks after its store; no workspace, no counters, and nothing to leave behind.
//
//   one sequence       four clusters of 16 CTAs. Each computes all scores, from the same rows, and a quarter of the
//                      output's dimensions: outputs, pushes and merges are a quarter as long for more traffic from L2,
//                      of which there is plenty. kv_indices are read without waiting for kv_indptr, since as a rule
//                      there are no others; no row is asked for before that is known.
//   up to 16 of them   whole sequences packed onto as many clusters as are resident at once (cluster_plan.cuh).
//
// All 16 warps load, compute and merge:
//   rows      four of 64 a warp, by 16-byte cp.async; two tiles under way
//   scores    4 groups of 16 tokens x 4 quarters of the 576 dimensions, summed up through shared memory
//   softmax   a head a warp; the last tile's maximum and sum go to the merging CTAs at once, before the output
//   output    16 heads x 32 (one sequence: 16, by half of the warps) dimensions a warp; pushed unnormalised, in bf16
//   merge     a head a warp works out what each part weighs; then one pair of dimensions a thread
#pragma once

#include "cluster_plan.cuh"
#include "params.cuh"
#include "ptx.cuh"

namespace cluster {

constexpr int kSlices = 4;  // of the dimensions, if there is one sequence: as many clusters
constexpr int kWarps = 16, kThreads = kWarps * 32;
constexpr int kTile = 64, kStages = 2, kTileBytes = kTile * kRowBytes;
constexpr int kTilesHeld = 8;            // one index a lane lasts a warp for so many tiles
constexpr int kScoreStride = kTile + 8;  // floats; 8 heads then fall on different banks
constexpr int kWeightBytes = (kTile + 8) * 2;
constexpr int kUnitBytes = 1024;       // 16 heads x 32 dimensions of a part
constexpr int kPieceBytes = 256;       // 16 heads x 8 dimensions: a sixteenth of a slice
constexpr int kMostUnits = 31;         // that a CTA merges: ceil(16 / parts) * parts
constexpr int kFactorStride = 16 + 4;  // floats

constexpr int kQueryAt = 0;
constexpr int kTilesAt = kQueryAt + kHeads * kRowBytes;
constexpr int kIndicesAt = kTilesAt + kTileBytes;  // until the second tile is loaded
constexpr int kScoresAt = kTilesAt + kStages * kTileBytes;
constexpr int kWeightsAt = kScoresAt + 4 * kHeads * kScoreStride * 4;
constexpr int kRescaleAt = kWeightsAt + kHeads * kWeightBytes;
constexpr int kReceivedAt = kRescaleAt + kHeads * 4;             // [unit][part], or [part]
constexpr int kSumsAt = kReceivedAt + kMostUnits * kUnitBytes;  // [part][head]: maximum, sum
constexpr int kFactorsAt = kSumsAt + kCtas * kHeads * 8;        // [head][part]
constexpr int kBarriersAt = kFactorsAt + kHeads * kFactorStride * 4;
constexpr int kWorkAt = kBarriersAt + 2 * 8;
constexpr int kSortAt = kWorkAt + 32;
constexpr int kSharedBytes = kSortAt + 2 * kMostSequences * 4;
constexpr int kMostIndices = kTileBytes / 4;
static_assert(kSharedBytes <= 232448, "more shared memory than an SM has");

struct Thread {
  char* memory;
  uint32_t base;
  int thread, warp, lane, rank;
  __device__ uint32_t sums_barrier() const { return base + kBarriersAt; }
  __device__ uint32_t data_barrier() const { return base + kBarriersAt + 8; }
  __device__ float* floats(int at) const { return reinterpret_cast<float*>(memory + at); }
  // The token of a tile whose index this lane holds: rows warp + 16 k of tile t are in lane 4 t + k.
  __device__ int token() const { return warp + (lane & 3) * 16 + (lane >> 2) * kTile; }
};

__device__ __forceinline__ void start_barriers(const Thread& t) {
  ptx::barrier_init(t.sums_barrier(), 1);
  ptx::barrier_init(t.data_barrier(), 1);
  ptx::barrier_init_fence();
}

// The query, a head a warp.
__device__ __forceinline__ void load_query(const Params& p, const Thread& t, int sequence) {
  const uint32_t entry = sequence >> p.group_shift;
  const uint32_t head = (sequence & ((1 << p.group_shift) - 1)) * kHeads + t.warp;
  const uint64_t nope = reinterpret_cast<uint64_t>(p.q_nope) + static_cast<uint64_t>(entry) * p.q_nope_batch_stride +
                        static_cast<uint64_t>(head) * p.q_nope_head_stride + t.lane * 16;
  const uint64_t pe = reinterpret_cast<uint64_t>(p.q_pe) + static_cast<uint64_t>(entry) * p.q_pe_batch_stride +
                      static_cast<uint64_t>(head) * p.q_pe_head_stride + t.lane * 16;
  const uint32_t to = t.base + kQueryAt + t.warp * kRowBytes + ((t.lane ^ (t.warp & 7)) << 4);
  if (t.warp < p.heads) {
    ptx::copy(to, nope);
    ptx::copy(to + 512, nope + 512);
    if (t.lane < 8) ptx::copy(to + 1024, pe);
  }
  ptx::commit_copies();
}

struct Rows {
  uint64_t ckv, kpe;
  uint32_t ckv_stride, kpe_stride, ckv_to, kpe_to;

  __device__ Rows(const Params& p, const Thread& t)
      : ckv(reinterpret_cast<uint64_t>(p.ckv_cache) + t.lane * 16),
        kpe(reinterpret_cast<uint64_t>(p.kpe_cache) + (t.lane & 7) * 16),
        ckv_stride(p.ckv_page_stride),
        kpe_stride(p.kpe_page_stride),
        ckv_to(t.base + kTilesAt + t.warp * kRowBytes + ((t.lane ^ (t.warp & 7)) << 4)),
        kpe_to(t.base + kTilesAt + (t.warp + (t.lane >> 3) * 16) * kRowBytes + 1024 +
               (((t.lane & 7) ^ (t.warp & 7)) << 4)) {}

  // Rows warp + 16 k of a tile, zeros up to the next multiple of 16 tokens. `held` are indices, as Thread::token says.
  __device__ __forceinline__ void load(const Thread& t, int held, int tile, int tokens) const {
    const int count = tokens - tile * kTile, slot = (tile % kTilesHeld) * 4;
    const uint32_t stage = (tile & 1) * kTileBytes;
    uint64_t from[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      from[k] = ckv + static_cast<uint64_t>(static_cast<uint32_t>(__shfl_sync(~0u, held, slot + k))) * ckv_stride;
    const uint32_t kpe_page = __shfl_sync(~0u, held, slot + (t.lane >> 3));
    const uint64_t kpe_from = kpe + static_cast<uint64_t>(kpe_page) * kpe_stride;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (k * 16 < count) {
        const uint32_t bytes = t.warp + k * 16 < count ? 16 : 0, to = ckv_to + stage + k * 16 * kRowBytes;
        ptx::copy_or_zero(to, from[k], bytes);
        ptx::copy_or_zero(to + 512, from[k] + 512, bytes);
      }
    }
    if (t.warp + (t.lane >> 3) * 16 < count) ptx::copy(kpe_to + stage, kpe_from);
    ptx::commit_copies();
  }
};

// The kernel's first steps: what work there is, and this lane's index of each of the first tiles.
__device__ __forceinline__ Work begin_single(const Params& p, const Thread& t, int& held) {
  if (t.thread == 0) start_barriers(t);
  const int from = __ldg(p.kv_indptr), to = __ldg(p.kv_indptr + 1);
  Work work = whole_cluster(0, p.num_indices, t.rank);
  if (work.begin + t.token() < work.end) held = __ldg(p.kv_indices + work.begin + t.token());
  load_query(p, t, 0);
  __syncwarp();
  ptx::cluster_arrive();
  if (from != 0 || to != p.num_indices) {
    work = whole_cluster(from, to - from, t.rank);
    held = work.begin + t.token() < work.end ? __ldg(p.kv_indices + work.begin + t.token()) : 0;
  }
  return work;
}

__device__ __forceinline__ Work begin_packed(const Params& p, const Thread& t, int& held) {
  Work* shared_work = reinterpret_cast<Work*>(t.memory + kWorkAt);
  if (t.warp == 0) {
    const Work mine = packed_cluster(p, blockIdx.x / kCtas, gridDim.x / kCtas, t.rank,
                                     reinterpret_cast<unsigned*>(t.memory + kSortAt));
    if (t.lane == 0) *shared_work = mine;
  } else {
    if (t.thread == 32) start_barriers(t);
    // Meanwhile kv_indices come to shared memory, or near.
    if (p.indices_fit) {
      const int vectors = (p.num_indices + 3) >> 2;
#pragma unroll 4
      for (int i = t.thread - 32; i < vectors; i += kThreads - 32)
        ptx::copy_or_zero(t.base + kIndicesAt + i * 16, reinterpret_cast<uint64_t>(p.kv_indices) + i * 16,
                          min(16, (p.num_indices - i * 4) * 4));
      ptx::copies_wait();
    } else {
      const int token = (blockIdx.x + gridDim.x * (t.thread - 32)) * 32;
      if (token < p.num_indices) ptx::prefetch_l2(p.kv_indices + token);
    }
  }
  __syncwarp();
  ptx::cluster_arrive();
  __syncthreads();
  const Work work = *shared_work;
  if (work.begin + t.token() < work.end) {
    const int at = work.begin + t.token();
    held = p.indices_fit ? reinterpret_cast<const int*>(t.memory + kIndicesAt)[at] : __ldg(p.kv_indices + at);
  }
  load_query(p, t, work.sequence);
  return work;
}

// Where a thread reads and writes in a tile; worked out while rows are on their way.
struct Places {
  int group, row, column;  // tokens 16 group + [0, 16) are this warp's; row and column of an mma accumulator
  uint32_t query_from, keys_from, values_from, weights_from;
  const float* scores_from;
  float *scores_to, *rescale;

  __device__ Places(const Thread& t, int chunk)
      : group(t.warp >> 2),
        row(t.lane >> 2),
        column((t.lane & 3) * 2),
        rescale(t.floats(kRescaleAt)) {
    const int key_part = t.warp & 3, swizzle = t.lane & 7;
    const uint32_t tiles = t.base + kTilesAt;
    query_from = t.base + kQueryAt + (t.lane & 15) * kRowBytes + (((2 * key_part + (t.lane >> 4)) ^ swizzle) << 4);
    keys_from = tiles + (group * 16 + (t.lane & 7) + ((t.lane >> 4) & 1) * 8) * kRowBytes +
                (((2 * key_part + ((t.lane >> 3) & 1)) ^ swizzle) << 4);
    values_from = tiles + (t.lane & 15) * kRowBytes + (chunk >> 3) * 128 +
                  ((((chunk & 7) + (t.lane >> 4)) ^ swizzle) << 4);
    weights_from = t.base + kWeightsAt + (t.lane & 15) * kWeightBytes + (t.lane >> 4) * 16;
    scores_from = t.floats(kScoresAt) + t.warp * kScoreStride + t.lane * 2;
    scores_to = t.floats(kScoresAt) + (key_part * kHeads + row) * kScoreStride + group * 16 + column;
  }
};

// 16 heads x 16 tokens over a quarter of the dimensions.
__device__ __forceinline__ void compute_scores(const Places& at, const uint32_t (&query)[9][4], uint32_t stage) {
  float s[2][2][4];
#pragma unroll
  for (int i = 0; i < 16; ++i) s[i >> 3][(i >> 2) & 1][i & 3] = 0.f;
#pragma unroll
  for (int k = 0; k < 9; ++k) {
    uint32_t keys[4];
    ptx::load_matrix(keys, at.keys_from + stage + k * 128);
    ptx::mma(s[k & 1][0], query[k], keys[0], keys[1]);
    ptx::mma(s[k & 1][1], query[k], keys[2], keys[3]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float* to = at.scores_to + 8 * i;
    *reinterpret_cast<float2*>(to) = make_float2(s[0][i][0] + s[1][i][0], s[0][i][1] + s[1][i][1]);
    *reinterpret_cast<float2*>(to + 8 * kScoreStride) =
        make_float2(s[0][i][2] + s[1][i][2], s[0][i][3] + s[1][i][3]);
  }
}

// Running maximum and sum of a head, a head a warp. `top` is the same in all lanes.
struct Softmax {
  float top = -INFINITY, sum = 0.f;

  // Weights of a tile, two tokens a lane, to shared memory. Returns this lane's share of their sum.
  __device__ __forceinline__ float weigh(const Thread& t, const Places& at, int count, float logit_scale) {
    float x[2] = {0.f, 0.f};
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float2 v = *reinterpret_cast<const float2*>(at.scores_from + part * kHeads * kScoreStride);
      x[0] += v.x, x[1] += v.y;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) x[i] = t.lane * 2 + i < count ? x[i] * logit_scale : -INFINITY;
    const float new_top = fmaxf(top, ptx::warp_max(fmaxf(x[0], x[1])));
    const float factor = ptx::exp2_approx(top - new_top);
#pragma unroll
    for (int i = 0; i < 2; ++i) x[i] = ptx::exp2_approx(x[i] - new_top);
    *reinterpret_cast<uint32_t*>(t.memory + kWeightsAt + t.warp * kWeightBytes + t.lane * 4) =
        ptx::pack_bf16(x[0], x[1]);
    if (t.lane == 0) at.rescale[t.warp] = factor;
    top = new_top;
    sum *= factor;
    return x[0] + x[1];
  }
  __device__ __forceinline__ void add(float tile_sum) {
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) tile_sum += __shfl_xor_sync(~0u, tile_sum, distance);
    sum += tile_sum;
  }
};

// 16 heads x 8 kTiles8 dimensions.
template <int kTiles8>
__device__ __forceinline__ void compute_output(const Places& at, float (&out)[kTiles8][4], int count, uint32_t stage,
                                               bool first) {
  if (!first) {
    const float low = at.rescale[at.row], high = at.rescale[at.row + 8];
#pragma unroll
    for (int i = 0; i < kTiles8; ++i) out[i][0] *= low, out[i][1] *= low, out[i][2] *= high, out[i][3] *= high;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (k * 16 < count) {
      uint32_t weights[4];
      ptx::load_matrix(weights, at.weights_from + k * 32);
#pragma unroll
      for (int i = 0; i < kTiles8 / 2; ++i) {
        uint32_t values[4];
        ptx::load_matrix_transposed(values, (at.values_from + stage + k * 16 * kRowBytes) ^ (i << 5));
        ptx::mma(out[2 * i], weights, values[0], values[1]);
        ptx::mma(out[2 * i + 1], weights, values[2], values[3]);
      }
    }
  }
}

struct Result {
  char* output;
  float* lse;
  int heads;

  __device__ Result(const Params& p, int sequence) : heads(min(kHeads, p.heads)) {
    output = p.output + static_cast<long long>(sequence) * heads * 1024;
    lse = p.lse + static_cast<long long>(sequence) * heads;
  }
};

// The only part: the result itself.
template <int kTiles8>
__device__ __forceinline__ void write_alone(const Places& at, const Result& result,
                                            const float (&out)[kTiles8][4], int chunk, const float* factors) {
#pragma unroll
  for (int i = 0; i < kTiles8; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int head = at.row + 8 * half;
      const float factor = factors[head];
      if (head < result.heads)
        *reinterpret_cast<uint32_t*>(result.output + head * 1024 + (chunk + i) * 16 + at.column * 2) =
            ptx::pack_bf16(out[i][2 * half] * factor, out[i][2 * half + 1] * factor);
    }
  }
}

// The output, unnormalised, in the order in which it lies in registers. `unit_at` is this CTA's address of the place
// that the unit has in CTA `unit_to`.
template <bool kSingle, int kTiles8>
__device__ __forceinline__ void push_output(const Thread& t, const float (&out)[kTiles8][4], int index,
                                            uint32_t unit_at, int unit_to) {
  uint32_t words[2][kTiles8];
#pragma unroll
  for (int i = 0; i < kTiles8; ++i) {
    words[0][i] = ptx::pack_bf16(out[i][0], out[i][1]);
    words[1][i] = ptx::pack_bf16(out[i][2], out[i][3]);
  }
  if constexpr (kSingle) {
#pragma unroll
    for (int i = 0; i < kTiles8; ++i) {
      const int cta = t.warp * kTiles8 + i;
      ptx::push(ptx::in_cta(t.base + kReceivedAt + index * kPieceBytes + t.lane * 8, cta), words[0][i], words[1][i],
                ptx::in_cta(t.data_barrier(), cta));
    }
  } else {
    const uint32_t to = ptx::in_cta(unit_at, unit_to), barrier = ptx::in_cta(t.data_barrier(), unit_to);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      ptx::push(to + half * 512, make_uint4(words[half][0], words[half][1], words[half][2], words[half][3]), barrier);
  }
}

// What each part weighs in the result: a head a warp, a part a lane.
__device__ __forceinline__ void weigh_parts(const Thread& t, const Result& result, int parts, bool writes_lse) {
  float2 their{-INFINITY, 0.f};
  if (t.lane < parts) their = *reinterpret_cast<const float2*>(t.memory + kSumsAt + (t.lane * kHeads + t.warp) * 8);
  const float most = ptx::warp_max(their.x), weight = ptx::exp2_approx(their.x - most);
  float total = weight * their.y;
#pragma unroll
  for (int distance = 8; distance; distance >>= 1) total += __shfl_xor_sync(~0u, total, distance);
  if (t.lane < 16) t.floats(kFactorsAt)[t.warp * kFactorStride + t.lane] = weight * ptx::reciprocal(total);
  if (writes_lse && t.lane == 0 && t.warp < result.heads) result.lse[t.warp] = most + ptx::log2_approx(total);
}

// One word (two dimensions of a head) a thread; of several units, each half of the threads has every second.
template <bool kSingle>
__device__ __forceinline__ void merge(const Thread& t, const Result& result, int parts, int first_unit, int end_unit,
                                      int slice) {
  const int word = kSingle ? t.thread : t.thread & 255, side = kSingle ? 0 : t.thread >> 8;
  if (kSingle && word >= kPieceBytes / 4) return;
  int head, at;  // in the order of the pushes
  if (kSingle) {
    head = (word >> 3) + (word & 1) * 8;
    at = slice * (1024 / kSlices) + t.rank * 16 + ((word >> 1) & 3) * 4;
  } else {
    head = word >> 4;
    at = (word & 3) * 16 + ((word >> 2) & 3) * 4;
  }
  float factor[kCtas];
#pragma unroll
  for (int i = 0; i < kCtas; i += 4) {
    const float4 v = *reinterpret_cast<const float4*>(t.floats(kFactorsAt) + head * kFactorStride + i);
    factor[i] = v.x, factor[i + 1] = v.y, factor[i + 2] = v.z, factor[i + 3] = v.w;
  }
  ptx::wait_for_bytes(t.data_barrier());
#pragma unroll 1
  for (int unit = first_unit + side; unit < end_unit; unit += 2) {
    constexpr int kStride = kSingle ? kPieceBytes : kUnitBytes;
    const char* from = t.memory + kReceivedAt + (unit - first_unit) * parts * kUnitBytes + word * 4;
    float a = 0.f, b = 0.f;
    const auto add = [&](int part) {
      const uint32_t pair = *reinterpret_cast<const uint32_t*>(from + part * kStride);
      a += factor[part] * ptx::low_bf16(pair), b += factor[part] * ptx::high_bf16(pair);
    };
    if (kSingle || parts > 4) {
#pragma unroll
      for (int part = 0; part < kCtas; ++part)
        if (part < parts) add(part);
    } else {
#pragma unroll
      for (int part = 0; part < 4; ++part)
        if (part < parts) add(part);
    }
    if (head < result.heads)
      *reinterpret_cast<uint32_t*>(result.output + head * 1024 + (kSingle ? 0 : unit * 64) + at) =
          ptx::pack_bf16(a, b);
  }
}

template <bool kSingle>
__global__ void __launch_bounds__(kThreads, 1) mla_decode_cluster(const __grid_constant__ Params p) {
  constexpr int kOutputWarps = kSingle ? kWarps / 2 : kWarps;
  constexpr int kTiles8 = kSingle ? 2 : 4;  // of 8 dimensions, in a warp's output
  extern __shared__ __align__(128) char memory[];
  const Thread t{memory, ptx::shared_address(memory), static_cast<int>(threadIdx.x),
                 __shfl_sync(~0u, static_cast<int>(threadIdx.x) >> 5, 0), static_cast<int>(threadIdx.x) & 31,
                 ptx::cluster_rank()};
  const int warp = t.warp, lane = t.lane, slice = kSingle ? blockIdx.x / kCtas : 0;
  int held = 0;
  const Work work = kSingle ? begin_single(p, t, held) : begin_packed(p, t, held);
  const int tokens = work.end - work.begin, tiles = (tokens + kTile - 1) / kTile;
  const int parts = work.parts, index = t.rank - work.first;
  // All CTAs of a single sequence's cluster merge, also those that have no part.
  if (parts > 0 && (kSingle || tokens > 0)) {
    const Rows rows(p, t);
    rows.load(t, held, 0, tokens);
    if (!kSingle && p.indices_fit && tiles > 1) __syncthreads();  // all have their indices
    rows.load(t, held, 1, tokens);

    // --- prepared while rows are on their way
    const int chunk = slice * (64 / kSlices) + warp * kTiles8;  // the first 8 dimensions of this warp's output
    const Places at(t, chunk);
    const float logit_scale = p.logit_scale;
    const Result result(p, work.sequence);
    // Who merges what: of several sequences, part i of a sequence has the units of 32 dimensions [unit_of(i),
    // unit_of(i + 1)); of a single one, CTA i has the i-th 8 dimensions of the slice.
    const float per_part = ptx::reciprocal(parts) * 0.99999f;
    const auto unit_of = [&](int part) { return __float2int_rd((16 * part + parts - 0.5f) * per_part); };
    const int first_unit = kSingle ? 0 : unit_of(index), end_unit = kSingle ? 1 : unit_of(index + 1);
    const int merging = kSingle ? kCtas : parts;
    const int unit_to = (warp * parts) >> 4;  // the part that merges this warp's unit
    const int to_cta = kSingle ? 0 : work.first + unit_to;
    const uint32_t unit_at =
        kSingle ? 0 : t.base + kReceivedAt + ((warp - unit_of(unit_to)) * parts + index) * kUnitBytes + lane * 16;
    const int sums_cta = min(work.first + (lane & 15), kCtas - 1);
    const uint32_t sums_to = ptx::in_cta(t.base + kSumsAt + (index * kHeads + warp) * 8, sums_cta);
    const uint32_t sums_barrier = ptx::in_cta(t.sums_barrier(), sums_cta);
    if (t.thread == 0 && parts > 1) {
      ptx::expect_bytes(t.sums_barrier(), parts * kHeads * 8);
      ptx::expect_bytes(t.data_barrier(), parts * (kSingle ? kPieceBytes : (end_unit - first_unit) * kUnitBytes));
    }

    ptx::copies_wait_but<2>();
    __syncthreads();
    uint32_t query[9][4];
#pragma unroll
    for (int k = 0; k < 9; ++k) ptx::load_matrix(query[k], at.query_from + k * 128);
    float out[kTiles8][4];
#pragma unroll
    for (int i = 0; i < kTiles8; ++i) out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0.f;
    Softmax softmax;
    ptx::cluster_wait();  // all CTAs have begun: they may be written to

#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      const int count = min(kTile, tokens - tile * kTile);
      const uint32_t stage = (tile & 1) * kTileBytes;
      ptx::copies_wait_but<1>();
      __syncthreads();
      if (at.group * 16 < count) compute_scores(at, query, stage);
      __syncthreads();
      const float tile_sum = softmax.weigh(t, at, count, logit_scale);
      __syncthreads();
      softmax.add(tile_sum);
      if (tile + 1 == tiles && parts > 1 && lane < merging)
        ptx::push(sums_to, __float_as_uint(softmax.top), __float_as_uint(softmax.sum), sums_barrier);
      if (warp < kOutputWarps) compute_output(at, out, count, stage, tile == 0);
      // --- two tiles on, where this one was
      if (tile + 2 < tiles) {
        if ((tile + 2) % kTilesHeld == 0) {
          const int next = (tile + 2) * kTile + t.token();
          held = next < tokens ? __ldg(p.kv_indices + work.begin + next) : 0;
        }
        __syncthreads();
        rows.load(t, held, tile + 2, tokens);
      } else {
        ptx::commit_copies();
      }
    }

    if (parts == 1) {
      float* factors = t.floats(kFactorsAt);
      if (tokens > 0 && lane == 0) factors[warp] = ptx::reciprocal(softmax.sum);
      if (tokens > 0 && lane == 0 && slice == 0 && warp < result.heads)
        result.lse[warp] = softmax.top + ptx::log2_approx(softmax.sum);
      __syncthreads();
      if (tokens > 0 && warp < kOutputWarps) write_alone(at, result, out, chunk, factors);
    } else {
      if (tokens > 0 && warp < kOutputWarps) push_output<kSingle>(t, out, index, unit_at, to_cta);
      ptx::wait_for_bytes(t.sums_barrier());
      weigh_parts(t, result, parts, index == 0 && slice == 0);
      __syncthreads();
      merge<kSingle>(t, result, parts, first_unit, end_unit, slice);
    }
  }
  // --- empty sequences: output 0, lse -inf
#pragma unroll 1
  for (unsigned left = work.empty; left; left &= left - 1) {
    const int sequence = __ffs(left) - 1, heads = min(kHeads, p.heads);
    if (sequence % gridDim.x != blockIdx.x) continue;
    uint4* output = reinterpret_cast<uint4*>(p.output + static_cast<long long>(sequence) * heads * 1024);
    for (int i = t.thread; i < heads * 64; i += kThreads) output[i] = make_uint4(0, 0, 0, 0);
    if (t.thread < heads) p.lse[static_cast<long long>(sequence) * heads + t.thread] = -INFINITY;
  }
}

inline const void* kernel_for(int sequences) {
  return sequences == 1 ? reinterpret_cast<const void*>(mla_decode_cluster<true>)
                        : reinterpret_cast<const void*>(mla_decode_cluster<false>);
}

// A launch of `clusters` clusters.
struct Launch {
  cudaLaunchAttribute attribute{};
  cudaLaunchConfig_t config{};

  Launch(int clusters, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = kCtas;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.gridDim = clusters * kCtas;
    config.blockDim = kThreads;
    config.dynamicSmemBytes = kSharedBytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
};

// How many clusters the device has room for at once; 0 if it has none. To be asked before the first launch.
inline int resident() {
  int count = 0;
  for (int sequences = 1; sequences <= 2; ++sequences) {
    const void* kernel = kernel_for(sequences);
    Launch launch(1, nullptr);
    if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes) != cudaSuccess ||
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&count, kernel, &launch.config) != cudaSuccess) {
      cudaGetLastError();
      return 0;
    }
  }
  return count;
}

}  // namespace cluster
