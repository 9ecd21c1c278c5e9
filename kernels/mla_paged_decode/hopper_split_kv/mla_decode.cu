// MLA paged decode, sm_90a: one launch, no plan, no synchronisation.
//
// For each sequence, 16 query heads attend to its tokens. A token is a row of 512 + 64 bf16 (1,152 bytes) at a
// scattered place; all 16 heads share it, so that it is read once, and its first 512 dimensions are key and value.
// 30 FLOP a byte: memory bound when the batch is large, latency bound when it is small (31 of the 47 published
// workloads are). Hence the three rules here: rows are fetched as early and as deep as they fit, the work is divided
// without a launch of its own, and everything between the last row and the last store is kept short.
//
// Up to 16 sequences of few tokens have a kernel of their own, cluster.cuh; this one serves all else.
//
// 1. Division (schedule.cuh). One warp of each CTA reads kv_indptr and works out the CTA's share, while the others
//    fetch the kv_indices that it probably needs. One CTA an SM, since a second would double the parts to merge.
// 2. Load warps (8) copy rows into a ring of two tiles of 64 tokens, 16 bytes a thread (cp.async; whole rows by
//    bulk copies of 1,024 + 128 bytes are slower). 147 KB in flight: far more than latency x bandwidth (35 KB an
//    SM), which hides the time a tile is being used. Two tiles of 64 measured better than four of 32 where the
//    batch is large, since a tile costs two barriers, and equal elsewhere. Rows are fetched evict-first: they are
//    read once, and otherwise each would push a dirty line out of L2 (-5 us of 42 at 75,145 tokens).
// 3. Math warps (8) compute a tile in three steps with a barrier between them:
//    scores   16 heads x 16 tokens by mma.m16n8k16; 4 warps share the 576 dimensions, so that each keeps its
//             quarter of the queries in 36 registers, and 2 groups of them share the tokens; sums through shared memory
//    softmax  two heads a warp, running maximum; weights to shared memory in bf16
//    output   each warp owns 64 of the 512 dimensions: 16 x 64 fp32 in 32 registers
//    Rows of 1,152 bytes begin at bank 0, so the 16-byte columns are swizzled by the row's low three bits
//    (padding rows instead costs 2.5 times the shared-memory cycles of each copy).
// 4. Merge (exchange.cuh). A sequence divided among CTAs leaves a part of each in global memory; each of its CTAs
//    merges its slice of the 16 x 512 outputs. The load warps do it, idle by then and prepared ahead.
//
// 512 threads x 128 registers fill the register file. Every CTA waits for parts of others, so all must be resident:
// the launch is cooperative.
#include "cluster.cuh"
#include "exchange.cuh"
#include "params.cuh"
#include "ptx.cuh"
#include "schedule.cuh"

constexpr int kTile = 64;  // tokens a stage
constexpr int kStages = 2;
constexpr int kMathWarps = 8, kLoadWarps = 8;
constexpr int kMathThreads = kMathWarps * 32, kLoadThreads = kLoadWarps * 32;
constexpr int kThreads = kMathThreads + kLoadThreads;
constexpr int kScoreStride = kTile + 8;  // floats; 8 heads then fall on different banks
constexpr int kWeightBytes = (kTile + 8) * 2;

constexpr int kQueryAt = 0;
constexpr int kTilesAt = kQueryAt + kHeads * kRowBytes;  // after the last tile: scratch of two merges
constexpr int kScoresAt = kTilesAt + kStages * kTile * kRowBytes;
constexpr int kWeightsAt = kScoresAt + 4 * kHeads * kScoreStride * 4;
constexpr int kRescaleAt = kWeightsAt + kHeads * kWeightBytes;
constexpr int kSumsAt = kRescaleAt + kHeads * 4;
constexpr int kBarriersAt = kSumsAt + kHeads * 8;
constexpr int kPlanAt = kBarriersAt + 2 * kStages * 8;
constexpr int kWorkAt = kPlanAt + 2 * 16;
constexpr int kFirstAt = kWorkAt + 3 * 24;
constexpr int kSharedBytes = kFirstAt + 24;
static_assert(kSharedBytes <= 232448, "more shared memory than an SM has");
static_assert(2 * kScratchFloats * 4 <= kStages * kTile * kRowBytes, "no room for the scratch of two merges");

constexpr int kMathBarrier = 1, kLoadBarrier = 2, kHandOverBarrier = 3;  // named barriers

struct Shared {
  char* memory;
  uint32_t base;
  __device__ uint32_t full(int stage) const { return base + kBarriersAt + stage * 8; }
  __device__ uint32_t empty(int stage) const { return base + kBarriersAt + (kStages + stage) * 8; }
  __device__ uint32_t tile(int stage) const { return base + kTilesAt + stage * kTile * kRowBytes; }
};

__device__ __forceinline__ void math_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(kMathBarrier), "n"(kMathThreads) : "memory");
}

__device__ __forceinline__ void load_barrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(kLoadBarrier), "n"(kLoadThreads) : "memory");
}

// The math warps tell the load warps that all parts of this CTA are stored.
__device__ __forceinline__ void hand_over() {
  asm volatile("bar.arrive %0, %1;" ::"n"(kHandOverBarrier), "n"(kThreads) : "memory");
}
__device__ __forceinline__ void hand_over_wait() {
  asm volatile("bar.sync %0, %1;" ::"n"(kHandOverBarrier), "n"(kThreads) : "memory");
}

__device__ __forceinline__ Rows rows_of(const Params& p, int sequence) {
  const int heads = min(kHeads, p.heads);
  const long long row = static_cast<long long>(sequence) * heads;
  return {p.output + row * 1024, p.lse + row, heads};
}

__device__ __forceinline__ float* merge_scratch(const Shared& shared, int barrier) {
  return reinterpret_cast<float*>(shared.memory + kTilesAt) + (barrier - 1) * kScratchFloats;
}

// Load warps: rows by 16-byte copies, kTile tokens a stage. When all are on their way, these warps wait for the
// math warps to finish and merge the last segment's sequence if it has more parts.
template <class Split>
__device__ __forceinline__ void load_rows(const Params& p, const Shared& shared, const Batch& batch,
                                          typename Split::Plan plan, Work work) {
  constexpr int kRows = kTile / kLoadWarps;  // rows of a tile that one warp copies
  constexpr int kBatch = 4;                  // rows between two checks whether the tile is full
  constexpr int kTilesHeld = 32 / kRows;     // one index a lane lasts for so many tiles
  const int warp = (threadIdx.x >> 5) - kMathWarps, lane = threadIdx.x & 31;
  const uint64_t policy = ptx::evict_first_policy();
  const uint32_t ckv_to = shared.tile(0) + warp * kRowBytes + ((lane ^ warp) << 4);
  const uint32_t kpe_to = shared.tile(0) + warp * kRowBytes + 1024 + (((lane & 7) ^ warp) << 4) +
                          (lane >> 3) * kLoadWarps * kRowBytes;
  const uint64_t ckv = ptx::in_register(p.ckv_cache + lane * 16), kpe = ptx::in_register(p.kpe_cache + (lane & 7) * 16);
  const uint32_t ckv_stride = ptx::in_register(p.ckv_page_stride), kpe_stride = ptx::in_register(p.kpe_page_stride);
  const uint64_t all_indices = ptx::in_register(p.kv_indices);
  const int my_row = warp + lane * kLoadWarps;  // lane l holds the index of this warp's row l
  int stage = 0, parity = 1;
  Work last = work;
  while (work.segment.begin < work.segment.end) {
    const Segment segment = work.segment;
    const int* indices = reinterpret_cast<const int*>(all_indices) + my_row;
    int held = segment.begin + my_row < segment.end ? __ldg(indices + segment.begin) : 0, ahead = 0, tile_held = 0;
#pragma unroll 1
    for (int position = segment.begin; position < segment.end; position += kTile) {
      const int count = min(kTile, segment.end - position), padded = (count + 15) & ~15;
      const int first_lane = tile_held * kRows;
      ptx::barrier_wait(shared.empty(stage), parity);
      const uint32_t tile = stage * kTile * kRowBytes;
#pragma unroll 1
      for (int i = 0; i < kRows && i * kLoadWarps < count; i += kBatch) {
#pragma unroll
        for (int k = 0; k < kBatch; ++k) {
          const int row = warp + (i + k) * kLoadWarps;
          const uint32_t page = __shfl_sync(~0u, held, first_lane + i + k);
          if (row < padded) {
            const uint32_t bytes = row < count ? 16 : 0, to = tile + ckv_to + (i + k) * kLoadWarps * kRowBytes;
            const uint64_t from = ckv + static_cast<uint64_t>(page) * ckv_stride;
            ptx::copy_or_zero(to, from, bytes, policy);
            ptx::copy_or_zero(to + 512, from + 512, bytes, policy);
          }
        }
        const int mine = i + (lane >> 3);
        const uint32_t page = __shfl_sync(~0u, held, first_lane + mine);
        if (warp + mine * kLoadWarps < count)
          ptx::copy(tile + kpe_to + i * kLoadWarps * kRowBytes, kpe + static_cast<uint64_t>(page) * kpe_stride, policy);
      }
      ptx::copies_arrive(shared.full(stage));
      if (tile_held == 0) {
        const int next = position + kTile * kTilesHeld;
        ahead = next + my_row < segment.end ? __ldg(indices + next) : 0;
      }
      if (++tile_held == kTilesHeld) held = ahead, tile_held = 0;
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    last = work;
    work = Split::next(batch, plan);
  }
  if (last.parts.count <= 1) return;
  // prepared while the math warps are still at work
  const Merger<Split::kArrival> merger(p.slot_values, p.slot_sums, warp, last.parts.first_slot, last.parts.count,
                                       last.parts.index);
  const Rows rows = rows_of(p, last.segment.sequence);
  if constexpr (Split::kArrival == Arrival::kCounted) {
    uint32_t* counter = p.counters + last.segment.sequence;
    const bool announces = threadIdx.x == kMathThreads;
    const uint32_t before = announces ? ptx::load_relaxed(counter) : 0;
    hand_over_wait();
    if (announces) {
      ptx::fence_gpu();
      ptx::add_relaxed(counter, arrival(last.parts.index, last.parts.count));
      wait_for_parts(counter, before);
    }
    load_barrier();
  } else {
    hand_over_wait();
  }
  merger.run(rows, merge_scratch(shared, kLoadBarrier), warp, kLoadBarrier);
}

__device__ __forceinline__ void load_query(const Params& p, const Shared& shared, int sequence) {
  const int thread = threadIdx.x, head = thread >> 6, chunk = thread & 63, pe_head = thread >> 3, piece = thread & 7;
  const uint32_t entry = sequence >> p.group_shift;
  const uint32_t first_head = (sequence & ((1 << p.group_shift) - 1)) * kHeads;
  const uint64_t nope = reinterpret_cast<uint64_t>(p.q_nope) + static_cast<uint64_t>(entry) * p.q_nope_batch_stride +
                        static_cast<uint64_t>(first_head + head) * p.q_nope_head_stride + chunk * 16;
  const uint64_t pe = reinterpret_cast<uint64_t>(p.q_pe) + static_cast<uint64_t>(entry) * p.q_pe_batch_stride +
                      static_cast<uint64_t>(first_head + pe_head) * p.q_pe_head_stride + piece * 16;
  const uint32_t to = shared.base + kQueryAt + head * kRowBytes + ((chunk ^ head) << 4);
#pragma unroll
  for (int i = 0; i < 4; ++i)  // head + 4 i: bit 2 of the swizzle follows i
    if (head + 4 * i < p.heads)
      ptx::copy((to + 4 * i * kRowBytes) ^ ((4 * i & 7) << 4),
                nope + static_cast<uint64_t>(4 * i) * p.q_nope_head_stride);
  if (thread < 128 && pe_head < p.heads)
    ptx::copy(shared.base + kQueryAt + pe_head * kRowBytes + 1024 + ((piece ^ (pe_head & 7)) << 4), pe);
}

template <class Split>
__device__ __forceinline__ void compute(const Params& p, const Shared& shared, const Batch& batch) {
  const int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int key_part = warp & 3, token_half = warp >> 2;
  const int row = lane >> 2, column = (lane & 3) * 2;  // of an mma accumulator
  float* scores = reinterpret_cast<float*>(shared.memory + kScoresAt);
  float* rescale = reinterpret_cast<float*>(shared.memory + kRescaleAt);
  float2* sums = reinterpret_cast<float2*>(shared.memory + kSumsAt);

  // Step k of a warp covers dimensions 64 k + 16 key_part + [0, 16): only the low three bits of the 16-byte column
  // then take part in the swizzle, and k is an immediate offset.
  const uint32_t swizzle = lane & 7;
  const uint32_t query_from = shared.base + kQueryAt + (lane & 15) * kRowBytes +
                              (((2 * key_part + (lane >> 4)) ^ swizzle) << 4);
  const uint32_t key_from = ((lane & 7) + ((lane >> 4) & 1) * 8) * kRowBytes +
                            (((2 * key_part + ((lane >> 3) & 1)) ^ swizzle) << 4);
  const uint32_t value_from = (lane & 15) * kRowBytes + warp * 128 + (((lane >> 4) ^ swizzle) << 4);
  const uint32_t weight_from = shared.base + kWeightsAt + (lane & 15) * kWeightBytes + (lane >> 4) * 16;

  typename Split::Plan& plan = *reinterpret_cast<typename Split::Plan*>(shared.memory + kPlanAt);
  Work* works = reinterpret_cast<Work*>(shared.memory + kWorkAt);  // of segment i in i % 3: two would be overtaken

  int stage = 0, parity = 0, segments = 0;
  bool merges_first = false;
  Segment segment = works[0].segment;
  if (segment.begin < segment.end) load_query(p, shared, segment.sequence);
#pragma unroll 1
  while (segment.begin < segment.end) {
    if (Split::kMaxSegments > 1 && warp == 0) {
      typename Split::Plan mine = plan;
      const Work next = Split::next(batch, mine);
      __syncwarp();
      if (lane == 0) plan = mine, works[(segments + 1) % 3] = next;
    }
    ptx::copies_wait();
    math_barrier();
    uint32_t query[9][4];
#pragma unroll
    for (int k = 0; k < 9; ++k) ptx::load_matrix(query[k], query_from + k * 128);
    float out[8][4];
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i][0] = out[i][1] = out[i][2] = out[i][3] = 0.f;
    float top = -INFINITY, sum = 0.f;  // of head 2 * warp + (lane >> 4), the same in all its 16 lanes

#pragma unroll 1
    for (int position = segment.begin; position < segment.end; position += kTile) {
      const int count = min(kTile, segment.end - position);
      ptx::barrier_wait(shared.full(stage), parity);
      const uint32_t tile = shared.tile(stage);
      // --- scores: 16 heads x 16 tokens at a time, over a quarter of the dimensions
#pragma unroll 1
      for (int token = token_half * 16; token < count; token += 32) {
        float s[2][2][4];
#pragma unroll
        for (int i = 0; i < 16; ++i) s[i >> 3][(i >> 2) & 1][i & 3] = 0.f;
        const uint32_t from = tile + token * kRowBytes + key_from;
#pragma unroll
        for (int k = 0; k < 9; ++k) {
          uint32_t keys[4];
          ptx::load_matrix(keys, from + k * 128);
          ptx::mma(s[k & 1][0], query[k], keys[0], keys[1]);
          ptx::mma(s[k & 1][1], query[k], keys[2], keys[3]);
        }
        float* to = scores + (key_part * kHeads + row) * kScoreStride + token + column;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          *reinterpret_cast<float2*>(to + 8 * i) = make_float2(s[0][i][0] + s[1][i][0], s[0][i][1] + s[1][i][1]);
          *reinterpret_cast<float2*>(to + 8 * i + 8 * kScoreStride) =
              make_float2(s[0][i][2] + s[1][i][2], s[0][i][3] + s[1][i][3]);
        }
      }
      math_barrier();
      // the query is in registers everywhere by now: fetch the next one
      if (Split::kMaxSegments > 1 && position == segment.begin) {
        const Segment next = works[(segments + 1) % 3].segment;
        if (next.begin < next.end) load_query(p, shared, next.sequence);
      }
      // --- softmax: a warp takes two heads, 16 lanes a head and 4 tokens a lane
      float tile_sum = 0.f;
      {
        static_assert(kTile == 64, "a lane takes 4 tokens of a head");
        const int head = warp * 2 + (lane >> 4), first = (lane & 15) * 4;
        float x[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float4 v = *reinterpret_cast<const float4*>(scores + (part * kHeads + head) * kScoreStride + first);
          x[0] += v.x, x[1] += v.y, x[2] += v.z, x[3] += v.w;
        }
        float new_top = top;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = first + i < count ? x[i] * p.logit_scale : -INFINITY;
          new_top = fmaxf(new_top, x[i]);
        }
#pragma unroll
        for (int distance = 8; distance; distance >>= 1)
          new_top = fmaxf(new_top, __shfl_xor_sync(~0u, new_top, distance));
        const float factor = ptx::exp2_approx(top - new_top);
        top = new_top;
        sum *= factor;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          x[i] = ptx::exp2_approx(x[i] - new_top);
          tile_sum += x[i];
        }
        *reinterpret_cast<uint2*>(shared.memory + kWeightsAt + head * kWeightBytes + first * 2) =
            make_uint2(ptx::pack_bf16(x[0], x[1]), ptx::pack_bf16(x[2], x[3]));
        if ((lane & 15) == 0) rescale[head] = factor;
      }
      math_barrier();
      // --- output: 16 heads x this warp's 64 dimensions; meanwhile the sum over the columns of the tile
      {
        const float low = rescale[row], high = rescale[row + 8];
#pragma unroll
        for (int distance = 8; distance; distance >>= 1) tile_sum += __shfl_xor_sync(~0u, tile_sum, distance);
        sum += tile_sum;
        if ((lane & 15) == 0) sums[warp * 2 + (lane >> 4)] = make_float2(top, sum);
#pragma unroll
        for (int i = 0; i < 8; ++i) out[i][0] *= low, out[i][1] *= low, out[i][2] *= high, out[i][3] *= high;
        uint32_t from = tile + value_from, weights_at = weight_from;
#pragma unroll 1
        for (int token = 0; token < count; token += 16, from += 16 * kRowBytes, weights_at += 32) {
          uint32_t weights[4];
          ptx::load_matrix(weights, weights_at);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            uint32_t values[4];
            ptx::load_matrix_transposed(values, from ^ (i << 5));
            ptx::mma(out[2 * i], weights, values[0], values[1]);
            ptx::mma(out[2 * i + 1], weights, values[2], values[3]);
          }
        }
      }
      __syncwarp();
      if (lane == 0) ptx::barrier_arrive(shared.empty(stage));
      if (++stage == kStages) stage = 0, parity ^= 1;
    }

    // --- end of the segment: normalise; to the output if that is all, else to this part's slot
    math_barrier();
    const float2 low_sum = sums[row], high_sum = sums[row + 8];
    const float low = ptx::reciprocal(low_sum.y), high = ptx::reciprocal(high_sum.y);
    const float low_lse = low_sum.x + ptx::log2_approx(low_sum.y), high_lse = high_sum.x + ptx::log2_approx(high_sum.y);
    const Parts parts = works[segments % 3].parts;
    uint4 v[4];  // units 4 * warp + [0, 4)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int half = (i >> 1) * 2, first = (i & 1) * 4;
      const float factor = half ? high : low;
      v[i].x = ptx::pack_bf16(out[first][half] * factor, out[first][half + 1] * factor);
      v[i].y = ptx::pack_bf16(out[first + 1][half] * factor, out[first + 1][half + 1] * factor);
      v[i].z = ptx::pack_bf16(out[first + 2][half] * factor, out[first + 2][half + 1] * factor);
      v[i].w = ptx::pack_bf16(out[first + 3][half] * factor, out[first + 3][half + 1] * factor);
    }
    if (parts.count > 1) {
      const int slot = parts.first_slot + parts.index;
      uint4* values = p.slot_values + slot * kSlotVectors + warp * 128 + lane;
      uint32_t* sums_to = p.slot_sums + slot * kSlotSums + warp * 32 + row;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint32_t lse = __float_as_uint(i < 2 ? low_lse : high_lse);
        ptx::store_relaxed(values + i * 32, v[i]);
        if ((lane & 3) == 0) ptx::store_relaxed(sums_to + i * 8, lse == kEmpty ? 0x7fffffffu : lse);
      }
    } else {
      const Rows rows = rows_of(p, segment.sequence);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        rows.write(warp * 4 + i, v[i].x, v[i].y, v[i].z, v[i].w, i < 2 ? low_lse : high_lse);
    }
    ++segments;
    if (Split::kMaxSegments > 1) segment = works[segments % 3].segment;
    if (Split::kMaxSegments == 1 || segment.begin >= segment.end) {
      if (parts.count > 1) hand_over();
      break;
    }
    if (segments == 1 && parts.count > 1) {
      // the load warps will merge the last segment's sequence, these warps the first one's
      if (thread == 0) *reinterpret_cast<Work*>(shared.memory + kFirstAt) = works[0];
      merges_first = true;
    }
  }
  if (Split::kMaxSegments > 1 && merges_first) {
    math_barrier();
    const Work first = *reinterpret_cast<const Work*>(shared.memory + kFirstAt);
    const Merger<Split::kArrival> merger(p.slot_values, p.slot_sums, warp, first.parts.first_slot, first.parts.count,
                                         first.parts.index);
    merger.run(rows_of(p, first.segment.sequence), merge_scratch(shared, kMathBarrier), warp, kMathBarrier);
  }
}

// An empty sequence has output 0 and lse -inf.
__device__ __forceinline__ void write_empty(const Params& p, const Batch& batch) {
#pragma unroll 1
  for (int sequence = blockIdx.x; sequence < batch.sequences; sequence += gridDim.x) {
    if (batch.begin(sequence) < batch.end(sequence)) continue;
    const Rows rows = rows_of(p, sequence);
#pragma unroll 1
    for (int i = threadIdx.x; i < rows.heads * 64; i += kMathThreads)
      reinterpret_cast<uint4*>(rows.output)[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x < rows.heads) rows.lse[threadIdx.x] = -INFINITY;
  }
}

template <class Split>
__global__ void __launch_bounds__(kThreads, 1) mla_decode(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char memory[];
  const Shared shared{memory, ptx::shared_address(memory)};
  const Batch batch{p.kv_indptr, p.sequences, p.group_shift};
  typename Split::Plan* plan = reinterpret_cast<typename Split::Plan*>(memory + kPlanAt);
  Work* work = reinterpret_cast<Work*>(memory + kWorkAt);
  const int warp = threadIdx.x >> 5;
  if (warp == 0) {
    typename Split::Plan mine;
    const Work first = Split::first(batch, mine);
    // one copy for the math warps to change, one for the load warps
    if (threadIdx.x == 0) plan[0] = plan[1] = mine, work[0] = first;
  } else if (warp == 1) {
    if (threadIdx.x == 32) {
      for (int stage = 0; stage < kStages; ++stage) {
        ptx::barrier_init(shared.full(stage), kLoadThreads);
        ptx::barrier_init(shared.empty(stage), kMathWarps);
      }
      ptx::barrier_init_fence();
    }
  }
  if (warp >= kMathWarps) {
    const int from = max(0, __float2int_rz(p.warm_from + blockIdx.x * p.warm_step));
    const int token = from + (threadIdx.x - kMathThreads) * 32;
    if (token < min(p.num_indices, from + p.warm_count)) ptx::warm(p.kv_indices + token);
  }
  __syncthreads();
  if (warp >= kMathWarps) {
    load_rows<Split>(p, shared, batch, plan[1], work[0]);
  } else {
    compute<Split>(p, shared, batch);
    write_empty(p, batch);
  }
}

extern "C" {

// To be called once for each device, before any launch there. How many of cluster.cuh's clusters are resident at once,
// 0 if there cannot be any.
int mla_decode_clusters() {
  cudaFuncSetAttribute(mla_decode<SequenceSplit>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  cudaFuncSetAttribute(mla_decode<CostSplit>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
  return cluster::resident();
}

// A CUDA error code. `prepared` has everything but the pointers and logit_scale. If `clusters` is 0, `by_sequence`
// chooses SequenceSplit, else CostSplit, and `grid` must not exceed the CTAs that are resident at once.
int mla_decode_launch(const Params* prepared, const char* q_nope, const char* q_pe, const char* ckv_cache,
                      const char* kpe_cache, const int* kv_indptr, const int* kv_indices, char* output, float* lse,
                      float logit_scale, uint4* slot_values, uint32_t* slot_sums, uint32_t* counters, int clusters,
                      int by_sequence, int grid, void* stream) {
  Params params = *prepared;
  params.q_nope = q_nope, params.q_pe = q_pe, params.ckv_cache = ckv_cache, params.kpe_cache = kpe_cache;
  params.kv_indptr = kv_indptr, params.kv_indices = kv_indices, params.output = output, params.lse = lse;
  params.logit_scale = logit_scale;
  params.slot_values = slot_values, params.slot_sums = slot_sums, params.counters = counters;
  if (reinterpret_cast<uintptr_t>(kv_indices) % 16) params.indices_fit = 0;
  void* arguments[] = {&params};
  if (clusters) {
    const cluster::Launch launch(clusters, static_cast<cudaStream_t>(stream));
    return cudaLaunchKernelExC(&launch.config, cluster::kernel_for(params.sequences), arguments);
  }
  const void* kernel = by_sequence ? reinterpret_cast<const void*>(mla_decode<SequenceSplit>)
                                   : reinterpret_cast<const void*>(mla_decode<CostSplit>);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kSharedBytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

const char* mla_decode_error(int error) { return cudaGetErrorString(static_cast<cudaError_t>(error)); }

// The id of the graph capture under way on this stream, or 0.
unsigned long long mla_decode_capture(void* stream) {
  cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  if (cudaStreamGetCaptureInfo(static_cast<cudaStream_t>(stream), &status, &id) != cudaSuccess) return 0;
  return status == cudaStreamCaptureStatusActive ? id : 0;
}
}
