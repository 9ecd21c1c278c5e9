// Which CTA works on which tokens. One warp of each CTA works this out from kv_indptr while the others wait for
// it, so there is no plan and no launch before this one. Its instructions are on the critical path: every launch
// begins with the latency of kv_indptr, then this, then the latency of the first keys.
#pragma once

#include "exchange.cuh"
#include "ptx.cuh"

// Queries are handled in groups of 16 heads. A "sequence" here is one group of one batch entry: sequence i is
// batch entry i >> group_shift. (16 heads or fewer: group_shift is 0 and the two words mean the same.)
struct Batch {
  const int* kv_indptr;
  int sequences;
  int group_shift;

  __device__ int begin(int sequence) const { return __ldg(kv_indptr + (sequence >> group_shift)); }
  __device__ int end(int sequence) const { return __ldg(kv_indptr + (sequence >> group_shift) + 1); }
};

// Tokens [begin, end) of kv_indices, all of one sequence, computed by one CTA.
struct Segment {
  int sequence, begin, end;
};

// A sequence in more than one segment is merged from its parts; they lie in consecutive slots.
struct Parts {
  int first_slot, count, index;
};

struct Work {
  Segment segment;  // of no tokens: there is none
  Parts parts;
};

// Fewer tokens than this are not worth one more part to exchange.
constexpr int kLeastTokens = 32;

// A sequence of up to 64 x 64 tokens is cut into 64 parts at most: they are merged in one round of loads, and a part
// still fits one tile.
constexpr int kPartsOfOneRound = 64;

// For few sequences (32 at most, and no more than half the CTAs) that cluster.cuh does not serve, since they are more
// than 16 or long: each CTA gets one segment. The sequences are cut into parts of at most `share` tokens, with the
// smallest share of a few candidates that makes do with the CTAs at hand. One lane looks after one sequence.
struct SequenceSplit {
  static constexpr int kMaxSegments = 1;
  static constexpr Arrival kArrival = Arrival::kCounted;
  struct Plan {};

  // The CTA's first segment, by all lanes of one warp and the same in all. `plan` leads to the ones after it.
  __device__ static Work first(const Batch& batch, Plan&) {
    const int lane = threadIdx.x & 31, ctas = gridDim.x, item = blockIdx.x;
    const int mine = min(lane, batch.sequences - 1);
    int begin = batch.begin(mine), length = batch.end(mine) - begin;
    int owner = 0, parts, before = 0;
    if (batch.sequences == 1) {
      const int share = max(kLeastTokens, __float2int_ru(length * ptx::reciprocal(ctas)));
      parts = min(length <= kPartsOfOneRound * 64 ? min(ctas, kPartsOfOneRound) : ctas,
                  parts_of(length, ptx::reciprocal(share)));
    } else {
      if (lane >= batch.sequences) length = 0;
      const float share_reciprocal = smallest_share(length, batch.sequences, lane);
      parts = lane < batch.sequences ? parts_of(length, share_reciprocal) : 0;
      int through = parts;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(~0u, through, step);
        if (lane >= step) through += other;
      }
      const unsigned ends_after = __ballot_sync(~0u, item < through);
      owner = ends_after ? __ffs(ends_after) - 1 : 31;
      before = __shfl_sync(~0u, through - parts, owner);
      parts = __shfl_sync(~0u, parts, owner);
      begin = __shfl_sync(~0u, begin, owner);
      length = __shfl_sync(~0u, length, owner);
    }
    const int index = item - before;
    if (index >= parts) return {{0, 0, 0}, {0, 0, 0}};
    // part k begins at length * k / parts, in 32-bit fixed point
    const unsigned step = __float2uint_rd(4294966784.f * ptx::reciprocal(parts));
    const int first = __umulhi(length, index * step);
    const int last = index + 1 == parts ? length : __umulhi(length, (index + 1) * step);
    return {{owner, begin + first, begin + last}, {before, parts, index}};
  }

  __device__ static Work next(const Batch&, Plan&) { return {{0, 0, 0}, {0, 0, 0}}; }

 private:
  __device__ static int parts_of(int length, float share_reciprocal) {
    return max(1, __float2int_ru(length * share_reciprocal));
  }

  // 1 / share. Three candidates are counted in one warp reduction, ten bits each.
  __device__ static float smallest_share(int length, int sequences, int lane) {
    const float tokens = __reduce_add_sync(~0u, length), ctas = gridDim.x;
    const float lower = fmaxf(kLeastTokens, tokens * ptx::reciprocal(ctas));
    // tokens / upper + sequences <= ctas, so the upper bound always makes do
    const float upper = fmaxf(kLeastTokens, tokens * ptx::reciprocal(fmaxf(1.f, ctas - sequences)) + 1.f);
    const float step = (upper - lower) * 0.25f;
    float candidate[3];
    int packed = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      candidate[i] = ptx::reciprocal(lower + (i == 0 ? 0.5f : i) * step);
      packed |= parts_of(length, candidate[i]) << (10 * i);
    }
    const int sums = __reduce_add_sync(~0u, lane < sequences ? packed : 0), most = gridDim.x;
    float best = ptx::reciprocal(upper);
#pragma unroll
    for (int i = 2; i >= 0; --i)
      if (((sums >> (10 * i)) & 1023) <= most) best = candidate[i];
    return best;
  }
};

// For many sequences: all sequences are laid end to end and the line is cut into equal lengths, one for each
// CTA. A sequence takes up its tokens and kSegmentCost more, since beginning a segment costs a CTA about as
// much time as that many tokens. Only a CTA's first and last segment can be parts.
struct CostSplit {
  static constexpr int kMaxSegments = 2;  // that are parts
  static constexpr Arrival kArrival = Arrival::kWatched;
  static constexpr int kSegmentCost = 56;
  struct Plan {
    int origin, share, low, sequence;
  };

  __device__ static Work first(const Batch& batch, Plan& plan) {
    plan = begin_of_share(batch);
    return next(batch, plan);
  }

  __device__ static Work next(const Batch& batch, Plan& plan) {
    while (plan.sequence < batch.sequences) {
      const int sequence = plan.sequence, high = plan.low + plan.share;
      const int begin = batch.begin(sequence), length = batch.end(sequence) - begin;
      const int first = cost_before(batch, plan.origin, sequence) + kSegmentCost;
      if (first >= high) break;
      const int from = max(plan.low - first, 0), to = min(length, high - first);
      ++plan.sequence;
      if (from >= to) continue;
      Work work{{sequence, begin + from, begin + to}, {0, 1, 0}};
      if (to - from < length) {
        const int first_cta = first / plan.share, last_cta = (first + length - 1) / plan.share;
        // Walking along the line, each new segment has a later CTA or a later sequence: the sum numbers them.
        work.parts = {first_cta + sequence, last_cta - first_cta + 1, (int)blockIdx.x - first_cta};
      }
      return work;
    }
    return {{0, 0, 0}, {0, 0, 0}};
  }

 private:
  __device__ static Plan begin_of_share(const Batch& batch) {
    const int lane = threadIdx.x & 31, ctas = gridDim.x;
    constexpr int kHeld = 4;
    const int origin = batch.begin(0);
    if (batch.sequences <= 32 * kHeld && batch.group_shift == 0) {
      int begin[kHeld];  // all loads together, since each costs the whole latency of memory
#pragma unroll
      for (int i = 0; i < kHeld; ++i) begin[i] = batch.begin(min(lane + 32 * i, batch.sequences));
      const int total = batch.begin(batch.sequences) - origin + batch.sequences * kSegmentCost;
      const int share = share_of(total, ctas), low = blockIdx.x * share;
      int sequence = -1;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int number = lane + 32 * i;
        sequence += __popc(
            __ballot_sync(~0u, number < batch.sequences && begin[i] - origin + number * kSegmentCost <= low));
      }
      return {origin, share, low, sequence};
    }
    const int share = share_of(cost_before(batch, origin, batch.sequences), ctas), low = blockIdx.x * share;
    int sequence = 0, count = batch.sequences;  // the sequence at `low` is one of [sequence, sequence + count)
    while (count > 1) {
      const int step = (count + 31) / 32, offset = lane * step;
      const unsigned votes =
          __ballot_sync(~0u, offset < count && cost_before(batch, origin, sequence + offset) <= low);
      const int last = (__popc(votes) - 1) * step;
      sequence += last;
      count = min(step, count - last);
    }
    return {origin, share, low, sequence};
  }

  // share * ctas >= total, though the reciprocal is off by a few parts in 2^24
  __device__ static int share_of(int total, int ctas) {
    return max(kLeastTokens + kSegmentCost, __float2int_ru(total * ptx::reciprocal(ctas)) + 1 + (total >> 20));
  }

  __device__ static int cost_before(const Batch& batch, int origin, int sequence) {
    const int entry = sequence >> batch.group_shift, group = sequence & ((1 << batch.group_shift) - 1);
    const int begin = __ldg(batch.kv_indptr + entry);
    int cost = ((begin - origin) << batch.group_shift) + sequence * kSegmentCost;
    if (group > 0) cost += group * (__ldg(batch.kv_indptr + entry + 1) - begin);
    return cost;
  }
};
