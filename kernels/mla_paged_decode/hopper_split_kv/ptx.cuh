// The PTX instructions this kernel is made of, one function each.
#pragma once

#include <cuda_bf16.h>
#include <stdint.h>

namespace ptx {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Keeps a kernel parameter in a register: the compiler would rather load it from constant memory at every use,
// which costs more than the use.
__device__ __forceinline__ uint64_t in_register(const void* pointer) {
  uint64_t value = reinterpret_cast<uint64_t>(pointer);
  asm volatile("" : "+l"(value));
  return value;
}
__device__ __forceinline__ uint32_t in_register(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// --- mbarrier -------------------------------------------------------------------------------------
__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier), "r"(parity) : "memory");
}

// --- asynchronous copies --------------------------------------------------------------------------
__device__ __forceinline__ uint64_t evict_first_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// Copies 16 bytes, or writes zeros when `bytes` is 0 (the source is then not read).
__device__ __forceinline__ void copy_or_zero(uint32_t to, uint64_t from, uint32_t bytes, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from), "r"(bytes),
               "l"(policy) : "memory");
}
__device__ __forceinline__ void copy(uint32_t to, uint64_t from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void copy(uint32_t to, uint64_t from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// The barrier counts this thread as arrived once all its copies so far have landed.
__device__ __forceinline__ void copies_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void copies_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
__device__ __forceinline__ void copy_or_zero(uint32_t to, uint64_t from, uint32_t bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all of this thread's committed groups of copies but the last `kLeft`.
template <int kLeft>
__device__ __forceinline__ void copies_wait_but() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
__device__ __forceinline__ void prefetch_l2(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// --- clusters -------------------------------------------------------------------------------------
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// Relaxed: it orders nothing but the initialisation of mbarriers before it, by barrier_init_fence. (With release
// semantics it would wait for loads under way.)
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The address of the same place in the shared memory of CTA `rank` of the cluster.
__device__ __forceinline__ uint32_t in_cta(uint32_t address, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// Stores to another CTA's shared memory, and counts the bytes at its mbarrier once they are there.
__device__ __forceinline__ void push(uint32_t to, uint4 v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier) : "memory");
}
__device__ __forceinline__ void push(uint32_t to, uint32_t a, uint32_t b, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to), "r"(a),
               "r"(b), "r"(barrier) : "memory");
}
// Arrives at a barrier that completes once so many bytes have been pushed.
__device__ __forceinline__ void expect_bytes(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait_for_bytes(uint32_t barrier) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
      "@!done bra again;\n}" ::"r"(barrier) : "memory");
}

// --- tensor cores ---------------------------------------------------------------------------------
__device__ __forceinline__ void load_matrix(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void load_matrix_transposed(uint32_t (&r)[4], uint32_t from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
// c[16 x 8] += a[16 x 16] * b[16 x 8], bf16 in, fp32 out.
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// --- arithmetic -----------------------------------------------------------------------------------
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The largest of a warp's values: by the integer that sorts as they do, in one instruction instead of five shuffles.
__device__ __forceinline__ float warp_max(float x) {
  int key = __float_as_int(x);
  key = __reduce_max_sync(~0u, key ^ ((key >> 31) & 0x7fffffff));
  return __int_as_float(key ^ ((key >> 31) & 0x7fffffff));
}
__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<uint32_t*>(&pair);
}
__device__ __forceinline__ float low_bf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float high_bf16(uint32_t pair) { return __uint_as_float(pair & 0xffff0000u); }

// --- memory that other CTAs read and write --------------------------------------------------------
// Relaxed accesses go past L1, which is not coherent.
// .b128 makes the 16 bytes one access: they are never seen half written.
__device__ __forceinline__ uint4 load_relaxed(const uint4* from) {
  uint64_t low, high;
  asm volatile(
      "{\n.reg .b128 v;\n"
      "ld.relaxed.gpu.global.b128 v, [%2];\n"
      "mov.b128 {%0, %1}, v;\n}" : "=l"(low), "=l"(high) : "l"(from) : "memory");
  return make_uint4(low, low >> 32, high, high >> 32);
}
__device__ __forceinline__ void store_relaxed(uint4* to, uint4 v) {
  const uint64_t low = (static_cast<uint64_t>(v.y) << 32) | v.x, high = (static_cast<uint64_t>(v.w) << 32) | v.z;
  asm volatile(
      "{\n.reg .b128 v;\n"
      "mov.b128 v, {%1, %2};\n"
      "st.relaxed.gpu.global.b128 [%0], v;\n}" ::"l"(to), "l"(low), "l"(high) : "memory");
}
__device__ __forceinline__ void store_relaxed(uint32_t* to, uint32_t v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(from) : "memory");
  return v;
}
__device__ __forceinline__ void add_relaxed(uint32_t* to, uint32_t v) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Pulls a cache line into L1 and drops the value.
__device__ __forceinline__ void warm(const void* from) {
  asm volatile("{\n.reg .u32 v;\nld.global.nc.u32 v, [%0];\n}" ::"l"(from));
}

}  // namespace ptx
