// What the launches of rungs from 04 on have in common: from a shape known at run time to template arguments, and
// from ForwardArgs to the parameters of a kernel.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <stdexcept>

#include "launch.h"
#include "operations/attention/problem.h"

namespace flashladder::attention {

/// Calls f.operator()<Element, causal>() for the dtype and causal of the shape. The stage supports bf16 and f16, or has
/// refused the others before.
template <class F>
void with_element_and_causal_of(const AttentionShape& shape, F f) {
    const auto with_element = [&]<class Element>() {
        shape.causal ? f.template operator()<Element, true>() : f.template operator()<Element, false>();
    };
    shape.dtype == DType::bf16 ? with_element.template operator()<__nv_bfloat16>()
                               : with_element.template operator()<__half>();
}

/// The same for head_dim too, 64 or 128: f.operator()<Element, d, causal>().
template <class F>
void with_types_of(const AttentionShape& shape, F f) {
    with_element_and_causal_of(shape, [&]<class Element, bool causal>() {
        shape.head_dim == 64 ? f.template operator()<Element, 64, causal>() : f.template operator()<Element, 128, causal>();
    });
}

/// The same for head_dim alone: f.operator()<d>().
template <class F>
void with_d_of(const AttentionShape& shape, F f) {
    shape.head_dim == 64 ? f.template operator()<64>() : f.template operator()<128>();
}

/// The same for causal, with bf16 as variants of stages have it: f.operator()<Element, causal>().
template <class F>
void with_bf16_and_causal_of(const AttentionShape& shape, F f) {
#ifdef FLASHLADDER_NO_VARIANTS  // a mutant that its test catches without them
    throw std::logic_error("compiled without variants");
#else
    shape.causal ? f.template operator()<__nv_bfloat16, true>() : f.template operator()<__nv_bfloat16, false>();
#endif
}

/// The same for head_dim too: f.operator()<Element, d, causal>().
template <class F>
void with_bf16_types_of(const AttentionShape& shape, F f) {
    with_d_of(shape, [&]<int d>() {
        with_bf16_and_causal_of(shape, [&]<class Element, bool causal>() { f.template operator()<Element, d, causal>(); });
    });
}

constexpr float log2_e = 1.44269504089f;  // exponentials are of base 2: the scale of the scores takes this up

/// What a kernel gets: (Q, K, V, O, lse, N_q, N_k, heads that share a kv head, scale in base 2).
template <class Element>
using ForwardKernel = void (*)(const Element*, const Element*, const Element*, Element*, float*, int, int, int, float);

/// Launches it on a grid of (blocks of B_r queries, heads, batch). Throws CudaError.
template <class Element>
void launch_forward(ForwardKernel<Element> kernel, const ForwardArgs& args, int B_r, int threads,
                    std::size_t shared_bytes) {
    const AttentionShape& s = args.shape;
    const dim3 grid((s.n_q + B_r - 1) / B_r, s.heads, s.batch);
    launch_kernel(kernel, {grid, dim3(threads), shared_bytes, args.stream}, static_cast<const Element*>(args.Q),
                  static_cast<const Element*>(args.K), static_cast<const Element*>(args.V),
                  static_cast<Element*>(args.O), args.lse, s.n_q, s.n_k, s.heads / s.kv_heads, args.scale * log2_e);
}

/// Launches a kernel whose blocks take tasks by the dynamic schedule (rung 11): one for each multiprocessor, or for each
/// task where these are fewer. args.scratch, a word, counts those that are taken. Throws CudaError.
template <class... Parameters, class... Arguments>
void launch_persistent(void (*kernel)(Parameters...), const ForwardArgs& args, int tasks, int threads,
                       std::size_t shared_bytes, const Arguments&... arguments) {
    check_cuda(cudaMemsetAsync(args.scratch, 0, sizeof(unsigned), args.stream), "no task is taken");
    const dim3 grid(std::min(tasks, device_attribute(cudaDevAttrMultiProcessorCount)));
    launch_kernel(kernel, {grid, dim3(threads), shared_bytes, args.stream}, arguments...);
}

}  // namespace flashladder::attention
