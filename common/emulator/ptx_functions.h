// What the functions of common/ptx call on the CPU backend. Each behaves as the PTX ISA says of the instruction of its
// name; what it leaves undefined is an error here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device_functions.h"

struct CUtensorMap;

namespace emulator {

std::uint32_t shared_address(const void* shared, const Where& where);

void ldmatrix(std::uint32_t* matrices, int n, bool transposed, const void* row, const Where& where);
void stmatrix(void* row, const std::uint32_t* matrices, int n, bool transposed, const Where& where);
void mma_m16n8k16(float* d, const std::uint32_t* a, const std::uint32_t* b, bool bf16, const Where& where);
float ex2_approx(float x);

void cp_async(void* shared, const void* global, int bytes, int valid, const Where& where);
void check_copy_size(std::size_t bytes, const Where& where);
void cp_async_commit(const Where& where);
void cp_async_wait(int pending, const Where& where);
void cp_async_arrive(std::uint64_t* barrier, const Where& where);  // when the thread's copies until now have been made
bool is_shared(const void* p);
bool is_global(const void* p);

void named_barrier(int id, int threads, bool wait, const Where& where);

void barrier_init(std::uint64_t* barrier, unsigned arrivals, const Where& where);
void barrier_invalidate(std::uint64_t* barrier, const Where& where);
void barrier_arrive(std::uint64_t* barrier, const Where& where);
void barrier_arrive_expect_tx(std::uint64_t* barrier, unsigned bytes, const Where& where);
unsigned barrier_parity(std::uint64_t* barrier, const Where& where);  // of the phase that goes on
bool barrier_try_wait(std::uint64_t* barrier, unsigned parity, const Where& where);

void fence_barrier_init(const Where& where);
void fence_proxy_async(const Where& where);
bool elect_one(const Where& where);
void set_max_registers(int registers, bool increase, const Where& where);

enum class Reduction { none, add };  // of floats
void tma_load(void* tile, const CUtensorMap* map, std::uint64_t* barrier, const int* coordinates, int rank,
              const Where& where);
void tma_store(const CUtensorMap* map, const void* tile, const int* coordinates, int rank, Reduction reduction,
               const Where& where);
void bulk_load(void* shared, const void* global, unsigned bytes, std::uint64_t* barrier, const Where& where);
void bulk_store(void* global, const void* shared, unsigned bytes, Reduction reduction, const Where& where);
void bulk_commit(const Where& where);
void bulk_wait(int pending, bool only_read, const Where& where);
void prefetch_tensor_map(const CUtensorMap* map, const Where& where);

unsigned cluster_rank();
unsigned cluster_size();
void cluster_arrive(const Where& where);
void cluster_wait(const Where& where);
void* map_to_block(const void* shared, unsigned rank, const Where& where);
void barrier_arrive_at(std::uint64_t* barrier, unsigned rank, const Where& where);
void tma_load_multicast(void* tile, const CUtensorMap* map, std::uint64_t* barrier, const int* coordinates, int rank,
                        unsigned blocks, const Where& where);

/// A wgmma m64nNk16.
struct ProductShape {
    int n;
    bool bf16, accumulate, a_mn_major, b_mn_major, a_in_registers;
    bool operator==(const ProductShape&) const = default;
};
void check_descriptor(const void* start, unsigned leading, unsigned stride, const Where& where);
/// `fragment` is A if that is in registers. Until the wait, `d` and `fragment` are used where they are.
void wgmma(float* d, const ProductShape& shape, std::uint64_t a, std::uint64_t b, const std::uint32_t* fragment,
           const Where& where);
void wgmma_fence(const Where& where);
void wgmma_commit(const Where& where);
void wgmma_wait(int pending, const Where& where);
/// Behind it: an error, while races are looked for, if the accumulator `d` may still be under way.
void check_waited(const float* d, std::size_t bytes, const Where& where);

}  // namespace emulator
