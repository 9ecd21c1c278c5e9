// Partial results: how a CTA hands its part of a sequence to the others, and how they merge it.
//
// A part is its normalised output in bf16 (16 heads x 512) and the base-2 log of its softmax sum, in the order
// in which the tensor cores leave it in registers, so that it is stored and loaded 16 bytes a thread without any
// rearranging: a unit is 8 heads x 32 dimensions, one 16-byte vector a lane. Unit u holds dimensions
// 64 (u / 4) + 32 (u % 2) + [0, 32) of heads 8 (u / 2 % 2) + [0, 8); lane l of it holds head l / 4 and dimensions
// 8 t + 2 (l % 4) + {0, 1} for t = 0, 1, 2, 3.
//
// How does a reader know that a part has arrived? Two ways, since each is faster where it is used:
//
// kCounted: each sequence has a counter. A CTA that has stored its part passes a fence and adds to the counter; all
// parts of a sequence together add 2^31, so that the top bit turns over and the rest is 0 again, ready for the next
// launch with any number of parts. Where all CTAs finish together (SequenceSplit), whoever reads slots earlier
// fetches 2 MB of them from memory, in the way of the parts that are being written.
//
// kWatched: a slot holds kEmpty everywhere until its part arrives; readers load what they need until nothing is
// kEmpty, and then write kEmpty back for the next launch. Neither a pair of bf16 rounded from fp32 (whose NaN is
// 0x7fff) nor a stored lse is ever kEmpty, and 16 bytes are written as one. Where the parts of others are mostly
// there already (CostSplit), this saves the fence and a round trip.
#pragma once

#include "ptx.cuh"

enum class Arrival { kCounted, kWatched };

constexpr uint32_t kEmpty = 0xffffffffu;
constexpr int kUnits = 32;
constexpr int kSlotVectors = 1024;  // 16 KB of values
constexpr int kSlotSums = 256;      // lse, as [unit][8 heads]: the same layout
constexpr int kMergeWarps = 8;
constexpr int kScratchFloats = kMergeWarps * 10 * 32;

// Transposes the 4 x 4 words of four neighbouring lanes: before, word t of a lane is its piece of tile t; after,
// lane q holds the four pieces of tile q, 16 consecutive bytes of the output.
__device__ __forceinline__ uint4 gather_quad(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
  const uint32_t ab = __shfl_xor_sync(~0u, odd ? a : b, 1), cd = __shfl_xor_sync(~0u, odd ? c : d, 1);
  if (odd) a = ab, c = cd;
  else b = ab, d = cd;
  const uint32_t ac = __shfl_xor_sync(~0u, upper ? a : c, 2), bd = __shfl_xor_sync(~0u, upper ? b : d, 2);
  if (upper) a = ac, b = bd;
  else c = ac, d = bd;
  return make_uint4(a, b, c, d);
}

// Rows of one sequence in the output, and where a lane's 16 bytes of a unit go.
struct Rows {
  char* output;
  float* lse;
  int heads;

  __device__ void write(int unit, uint32_t a, uint32_t b, uint32_t c, uint32_t d, float log_sum) const {
    const int lane = threadIdx.x & 31, head = ((unit >> 1) & 1) * 8 + (lane >> 2);
    const uint4 v = gather_quad(a, b, c, d);
    if (head >= heads) return;
    *reinterpret_cast<uint4*>(output + head * 1024 + (unit >> 2) * 128 + (unit & 1) * 64 + (lane & 3) * 16) = v;
    if ((unit & ~2) == 0 && (lane & 3) == 0) lse[head] = log_sum;
  }
};

// The softmax-weighted sum of some parts of a vector: sum of 2^(lse - top) * value, and of 2^(lse - top).
struct Mean {
  float weight, value[8];

  __device__ void clear() {
    weight = 0.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] = 0.f;
  }
  __device__ void scale(float factor) {
    weight *= factor;
#pragma unroll
    for (int i = 0; i < 8; ++i) value[i] *= factor;
  }
  __device__ void add(const uint4& v, float factor) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    weight += factor;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      value[2 * i] += factor * ptx::low_bf16(words[i]);
      value[2 * i + 1] += factor * ptx::high_bf16(words[i]);
    }
  }
  __device__ void write(const Rows& rows, int unit, float top) const {
    const float factor = ptx::reciprocal(weight);
    rows.write(unit, ptx::pack_bf16(value[0] * factor, value[1] * factor),
               ptx::pack_bf16(value[2] * factor, value[3] * factor),
               ptx::pack_bf16(value[4] * factor, value[5] * factor),
               ptx::pack_bf16(value[6] * factor, value[7] * factor), top + ptx::log2_approx(weight));
  }
};

// What part `index` of `count` adds to the counter of its sequence, and whether all have.
__device__ __forceinline__ uint32_t arrival(int index, int count) {
  return index == 0 ? 0x80000000u - static_cast<uint32_t>(count - 1) : 1u;
}
__device__ __forceinline__ void wait_for_parts(const uint32_t* counter, uint32_t before) {
  while (((ptx::load_acquire(counter) ^ before) >> 31) == 0) {
  }
}

// Merges the units that fall to part `index` of `count`, with 8 warps that meet at named barrier `barrier`.
// Up to three parts ("paired"), a warp takes two units and loads all their parts; beyond that, `ways` warps share a
// unit and each takes every ways-th part, eight at a time. All loads of a round are in flight together.
template <Arrival kArrival>
class Merger {
 public:
  __device__ Merger(uint4* slot_values, uint32_t* slot_sums, int warp, int first_slot, int count, int index)
      : count_(count) {
    const int lane = threadIdx.x & 31, most = (kUnits + count - 1) / count;  // units of any part
    first_unit_ = index * kUnits / count;
    units_ = (index + 1) * kUnits / count - first_unit_;
    ways_log2_ = most > kMergeWarps ? 0 : 31 - __clz(kMergeWarps / most);
    const int way = warp & ((1 << ways_log2_) - 1);
    unit_ = first_unit_ + (warp >> ways_log2_);
    part_ = way;
    values_ = slot_values + (first_slot + way) * kSlotVectors + unit_ * 32 + lane;
    sums_ = slot_sums + (first_slot + way) * kSlotSums + unit_ * 8 + (lane >> 2);
  }

  __device__ __forceinline__ void run(const Rows& rows, float* scratch, int warp, int barrier) const {
    if (count_ <= 3)
      run_paired(rows);
    else
      run_shared(rows, scratch, warp, barrier);
  }

 private:
  // What is not wanted has lse -inf.
  template <int kLoads, class Wanted, class Slot, class Unit>
  __device__ __forceinline__ void load(uint4 (&v)[kLoads], float (&lse)[kLoads], Wanted wanted, Slot slot,
                                       Unit unit) const {
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = make_uint4(0, 0, 0, 0), lse[i] = -INFINITY;
    bool waiting = false;
    do {
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        if (wanted(i)) {
          v[i] = ptx::load_relaxed(values_ + slot(i) * kSlotVectors + unit(i) * 32);
          lse[i] = __uint_as_float(ptx::load_relaxed(sums_ + slot(i) * kSlotSums + unit(i) * 8));
        }
      if constexpr (kArrival == Arrival::kWatched) {
        waiting = false;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) waiting |= v[i].x == kEmpty || __float_as_uint(lse[i]) == kEmpty;
        waiting = __any_sync(~0u, waiting);
      }
    } while (waiting);
    if constexpr (kArrival == Arrival::kWatched) {  // for the next launch; now, while the stores have time to finish
#pragma unroll
      for (int i = 0; i < kLoads; ++i)
        if (wanted(i)) empty(slot(i), unit(i));
    }
  }

  __device__ __forceinline__ void empty(int slot, int unit) const {
    ptx::store_relaxed(values_ + slot * kSlotVectors + unit * 32, make_uint4(kEmpty, kEmpty, kEmpty, kEmpty));
    if ((threadIdx.x & 3) == 0) ptx::store_relaxed(sums_ + slot * kSlotSums + unit * 8, kEmpty);
  }

  __device__ __forceinline__ void run_paired(const Rows& rows) const {
    const bool two = unit_ + kMergeWarps < first_unit_ + units_;
    uint4 v[6];
    float lse[6];
    const auto wanted = [&](int i) { return i % 3 < count_ && (i < 3 || two); };
    const auto slot = [](int i) { return i % 3; };
    const auto unit = [](int i) { return i / 3 * kMergeWarps; };
    load(v, lse, wanted, slot, unit);
#pragma unroll
    for (int first = 0; first < 6; first += 3) {
      if (first > 0 && !two) break;
      const float top = fmaxf(fmaxf(lse[first], lse[first + 1]), lse[first + 2]);
      Mean mean;
      mean.clear();
#pragma unroll
      for (int i = first; i < first + 3; ++i) mean.add(v[i], ptx::exp2_approx(lse[i] - top));
      mean.write(rows, unit_ + unit(first), top);
    }
  }

  __device__ __forceinline__ void run_shared(const Rows& rows, float* scratch, int warp, int barrier) const {
    const int lane = threadIdx.x & 31, ways = 1 << ways_log2_;
    Mean mean;
    mean.clear();
    float top = -INFINITY;
    if (unit_ < first_unit_ + units_) {
#pragma unroll 1
      for (int part = part_; part < count_; part += 8 * ways) {
        const int n = (count_ - part + ways - 1) >> ways_log2_;
        const auto wanted = [&](int i) { return i < n; };
        const auto slot = [&](int i) { return part - part_ + i * ways; };
        uint4 v[8];
        float lse[8];
        load(v, lse, wanted, slot, [](int) { return 0; });
        float new_top = top;
#pragma unroll
        for (int i = 0; i < 8; ++i) new_top = fmaxf(new_top, lse[i]);
        if (part != part_) mean.scale(ptx::exp2_approx(top - new_top));
        top = new_top;
#pragma unroll
        for (int i = 0; i < 8; ++i)
          if (wanted(i)) mean.add(v[i], ptx::exp2_approx(lse[i] - top));
      }
    }
    if (ways == 1) {
      if (unit_ < first_unit_ + units_) mean.write(rows, unit_, top);
      return;
    }
    float* mine = scratch + warp * 320 + lane;
    mine[0] = top;
    mine[32] = mean.weight;
#pragma unroll
    for (int i = 0; i < 8; ++i) mine[64 + 32 * i] = mean.value[i];
    asm volatile("bar.sync %0, 256;" ::"r"(barrier) : "memory");
    // one warp adds up one word (two dimensions) of a unit
#pragma unroll 1
    for (int task = warp; task < units_ * 4; task += kMergeWarps) {
      const int word = task & 3;
      const float* theirs = scratch + ((task >> 2) << ways_log2_) * 320 + lane;
      float all_top = -INFINITY, weight = 0.f, low = 0.f, high = 0.f, tops[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        tops[i] = i < ways ? theirs[i * 320] : -INFINITY;
        all_top = fmaxf(all_top, tops[i]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i < ways) {
          const float factor = ptx::exp2_approx(tops[i] - all_top);
          weight += factor * theirs[i * 320 + 32];
          low += factor * theirs[i * 320 + 64 + 64 * word];
          high += factor * theirs[i * 320 + 96 + 64 * word];
        }
      }
      const int to = first_unit_ + (task >> 2), head = ((to >> 1) & 1) * 8 + (lane >> 2);
      if (head < rows.heads) {
        const float factor = ptx::reciprocal(weight);
        *reinterpret_cast<uint32_t*>(rows.output + head * 1024 + (to >> 2) * 128 + (to & 1) * 64 + word * 16 +
                                     (lane & 3) * 4) = ptx::pack_bf16(low * factor, high * factor);
        if ((to & ~2) == 0 && word == 0 && (lane & 3) == 0) rows.lse[head] = all_top + ptx::log2_approx(weight);
      }
    }
  }

  int count_, first_unit_, units_, ways_log2_, unit_, part_;
  uint4* values_;  // of this lane in the slot of its first part
  uint32_t* sums_;
};
