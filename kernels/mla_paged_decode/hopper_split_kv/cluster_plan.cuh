// Which CTA of a cluster works on which tokens, where sequences are few enough to give each a cluster, or a share of
// one. kernels/mla_paged_decode/NOTES.md has what each of these steps costs.
#pragma once

#include "params.cuh"
#include "ptx.cuh"

namespace cluster {

constexpr int kCtas = 16;          // of a cluster: the most that Hopper takes
constexpr int kMostSequences = 16;
constexpr int kLeastTokens = 16;  // of a part, if it is not the only one: rows of one mma

// Tokens [begin, end) of kv_indices, all of one sequence, whose parts CTAs first, first + 1, ... of the cluster have.
struct Work {
  int sequence, begin, end;
  int first, parts;
  unsigned empty;  // the sequences of no tokens, a bit each
};

// `length` tokens cut into parts that differ by one token at most.
struct Cut {
  int size, longer;  // the first `longer` parts have a token more

  __device__ Cut(int length, int parts) {
    size = __float2int_rd(length * ptx::reciprocal(parts));
    longer = length - size * parts;
    if (longer < 0) --size, longer += parts;
    if (longer >= parts) ++size, longer -= parts;
  }
  __device__ int begin(int part) const { return part * size + min(part, longer); }
};

// A single sequence: all CTAs of the cluster.
__device__ __forceinline__ Work whole_cluster(int begin, int length, int rank) {
  const int parts = min(kCtas, (length + kLeastTokens - 1) / kLeastTokens);
  Work work{0, 0, 0, 0, parts, length == 0 ? 1u : 0u};
  if (rank < parts) {
    const Cut cut(length, parts);
    work.begin = begin + cut.begin(rank);
    work.end = begin + cut.begin(rank + 1);
  }
  return work;
}

// How many of the cluster's CTAs a sequence gets: as few tokens a CTA as makes do with all of them. Lanes whose
// sequence is not `here` get 0. Three shares are tried in one warp reduction, ten bits each, between the one that
// would leave nothing over and one that always makes do.
__device__ __forceinline__ int parts_of(bool here, int length, int tokens) {
  const int count = __popc(__ballot_sync(~0u, here));
  const float lower = fmaxf(kLeastTokens, tokens * (1.f / kCtas));
  const float upper = fmaxf(kLeastTokens, tokens * ptx::reciprocal(fmaxf(1.f, kCtas - count)) + 1.f);
  const float step = (upper - lower) * 0.25f;
  float best = ptx::reciprocal(upper), tried[3];
  int packed = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    tried[i] = ptx::reciprocal(lower + (i == 0 ? 0.5f : i) * step);
    packed |= max(1, __float2int_ru(length * tried[i])) << (10 * i);
  }
  const int sums = __reduce_add_sync(~0u, here ? packed : 0);
#pragma unroll
  for (int i = 2; i >= 0; --i)
    if (((sums >> (10 * i)) & 1023) <= kCtas) best = tried[i];
  return here ? max(1, __float2int_ru(length * best)) : 0;
}

// Several sequences, by one warp: each goes to one cluster as a whole, the longest first, to the cluster that has the
// fewest tokens so far. `sort` is shared memory for 2 x kMostSequences words.
__device__ __forceinline__ Work packed_cluster(const Params& p, int cluster, int clusters, int rank, unsigned* sort) {
  const int lane = threadIdx.x & 31, entry = min(lane, p.sequences - 1) >> p.group_shift;
  const int begin = __ldg(p.kv_indptr + entry), own_length = __ldg(p.kv_indptr + entry + 1) - begin;
  const bool is_sequence = lane < p.sequences;

  // length and sequence in one word, sorted by counting how many are larger
  const unsigned key = is_sequence ? (static_cast<unsigned>(own_length) << 4) | (15 - lane) : 0u;
  const unsigned empty = __ballot_sync(~0u, is_sequence && own_length == 0);
  if (lane < kMostSequences) sort[lane] = key;
  __syncwarp();
  int order = 0;
#pragma unroll
  for (int i = 0; i < kMostSequences; i += 4) {
    const uint4 others = *reinterpret_cast<const uint4*>(sort + i);
    order += (others.x > key) + (others.y > key) + (others.z > key) + (others.w > key);
  }
  unsigned* sorted = sort + kMostSequences;
  if (lane < kMostSequences) sorted[is_sequence ? order : lane] = key;
  __syncwarp();

  // From here on lane i has the i-th longest sequence, and lane c what cluster c has: tokens * 32 + c.
  const unsigned mine = sorted[lane & 15];
  const int length = mine >> 4, sequence = 15 - (mine & 15);
  unsigned filled = lane < clusters ? ((mine >> 4) << 5) | lane : ~0u;
  int goes_to = lane;
#pragma unroll 1
  for (int i = clusters; i < p.sequences; ++i) {
    const unsigned next = (sorted[i] >> 4) << 5;
    const int emptiest = __reduce_min_sync(~0u, filled) & 31;
    if (lane == emptiest) filled += next;
    if (lane == i) goes_to = emptiest;
  }
  const bool here = is_sequence && goes_to == cluster && length > 0;
  const int parts = parts_of(here, length, __shfl_sync(~0u, filled, cluster) >> 5);

  int through = parts;
#pragma unroll
  for (int distance = 1; distance < kMostSequences; distance *= 2) {
    const int other = __shfl_up_sync(~0u, through, distance);
    if (lane >= distance) through += other;
  }
  Work work{0, 0, 0, 0, 0, empty};
  const unsigned ends_after = __ballot_sync(~0u, rank < through);
  if (ends_after == 0) return work;
  const int owner = __ffs(ends_after) - 1;
  work.parts = __shfl_sync(~0u, parts, owner);
  work.first = __shfl_sync(~0u, through, owner) - work.parts;
  work.sequence = __shfl_sync(~0u, sequence, owner);
  const int from = __shfl_sync(~0u, begin, work.sequence);
  const Cut cut(__shfl_sync(~0u, length, owner), work.parts);
  work.begin = from + cut.begin(rank - work.first);
  work.end = from + cut.begin(rank - work.first + 1);
  return work;
}

}  // namespace cluster
