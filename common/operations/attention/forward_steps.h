// What rung 14's consumer does with a task, for kernels that have other tasks: S of a block of keys and P V of the block
// before are under way at once.
#pragma once

#include "lcsf/lcsf.h"
#include "operations/attention/early_keys.h"
#include "tile/lazy_softmax.h"
#include "tile/warpgroup.h"

namespace flashladder::attention {

constexpr int unit = 64;  // queries of a consumer

/// Base of a Kernel of the template (lcsf/lcsf.h), whose State, begin() and compute() it has. What the Kernel says,
/// besides what the template asks for:
///
///   causal                     whether query i sees the keys up to i + N_k - N_q alone
///   queries, keys(p, task)     N_q and N_k of what the task belongs to
///   first_key(p, task, t)      with which key step t begins: an earlier one than step t - 1
///   first_step(c, p, task)     by a consumer: the step it begins with, once it has called c.skip() for those before
///   Task::i, Problem::scale    the task's first query; a tile::LazyScale
///
/// A unit of queries may see nothing of the block of its first step, and sees each block behind it. Products have d columns
/// of Q_i and K_j, and d_v of V_j; behind these, up to whole panels, tiles may have others, whatever they are.
template <class Kernel, class Element, int d, int B_c, int d_v = d>
struct ForwardSteps {
    template <int rows, int columns>
    using Panels = tile::SharedTile<Element, rows, (columns + 63) / 64 * 64, tile::Swizzled<128>>;
    using Scores = tile::Accumulator<16, B_c>;
    using OutputTile = Panels<16, d_v>;  // a warp's part of O_i

    struct State {
        tile::Accumulator<16, d_v> O;
        tile::Operand<Element, 16, B_c> P;
        tile::LazySoftmax softmax;
        int t;  // the step
    };

    /// Of the warp's 16 rows.
    template <class Consumer, class Task>
    __device__ __forceinline__ static int first_row(const Consumer& c, const Task& task) {
        return task.i + c.number * unit + c.warp * 16;
    }
    /// The last key that query i sees, if causal.
    template <class Problem, class Task>
    __device__ __forceinline__ static int last_key(int i, const Problem& p, const Task& task) {
        return i + Kernel::keys(p, task) - Kernel::queries(p, task);
    }
    /// Where a warp's rows of O leave from: those of its Q.
    template <class Consumer>
    __device__ __forceinline__ static OutputTile output_of_warp(const Consumer& c) {
        return {c.own().data + c.warp * OutputTile::elements};
    }
    template <class Consumer, class Problem, class Task>
    __device__ __forceinline__ static void begin(State& s, Consumer& c, const Problem& p, const Task& task) {
        s.t = Kernel::first_step(c, p, task);
        const int j = Kernel::first_key(p, task, s.t);  // read here, while K_j is on its way
        s.softmax.begin(p.scale);
        Scores S;
        begin_scores(S, c);
        c.turns.pass();
        tile::wait<0>(S);
        c.first.give_back();
        hide(S, j, c, p, task);
        s.softmax.template update<true>(S, s.P, s.O, p.scale);
        tile::fill(s.O, 0);
        ++s.t;
    }
    template <class Consumer, class Problem, class Task>
    __device__ __forceinline__ static void compute(State& s, Consumer& c, const Problem& p, const Task& task) {
        const int steps = Kernel::steps(task), seen_by_all = last_key(task.i + c.number * unit, p, task);
        for (; Kernel::causal && s.t < steps; ++s.t) {
            const int j = Kernel::first_key(p, task, s.t);
            if (j + B_c - 1 <= seen_by_all) break;  // nor do later steps need a mask, whose keys come before
            step<true>(s, j, c, p, task);
        }
#pragma unroll 1
        for (; s.t < steps; ++s.t) step<false>(s, 0, c, p, task);
    }
    /// The last product. What the rows end with is in s.O; returns their LSE.
    template <class Consumer, class Problem>
    __device__ __forceinline__ static auto end_output(State& s, Consumer& c, const Problem& p) {
        tile::begin_multiply(s.O, s.P, tile::first_columns<d_v>(c.second.take()));
        tile::wait<0>(s.O, s.P);
        c.second.give_back();
        return s.softmax.finish(s.O, p.scale);
    }

private:
    template <int consumers>
    static constexpr int early_of = early_keys(consumers, d, B_c);

    /// Of the block from key j on, the scores of keys that a query of the warp does not see become -infinity.
    template <class Consumer, class Problem, class Task>
    __device__ __forceinline__ static void hide(Scores& S, int j, const Consumer& c, const Problem& p,
                                                const Task& task) {
        const int N_k = Kernel::keys(p, task), seen_by_all = last_key(first_row(c, task), p, task);
        if (Kernel::causal && j + B_c - 1 > seen_by_all) tile::hide_right_of(S, seen_by_all - j);
        if (!Kernel::causal && j + B_c > N_k) tile::hide_columns(S, N_k - j);
    }
    /// S and P of the block from key j on, and P V of the block before.
    template <bool masked, class Consumer, class Problem, class Task>
    __device__ __forceinline__ static void step(State& s, int j, Consumer& c, const Problem& p, const Task& task) {
        constexpr int early = early_of<lcsf::consumers_of_block<Kernel>>;
        Scores S;
        begin_scores(S, c);
        tile::begin_multiply(s.O, s.P, tile::first_columns<d_v>(c.second.take()));
        c.turns.pass();
        tile::wait<early == 0 ? 0 : 1>(S);
        c.first.give_back();
        if (masked) hide(S, j, c, p, task);
        s.softmax.template update<false, early>(S, s.P, s.O, p.scale, [&] {
            tile::wait<0>(s.O, s.P);
            c.second.give_back();
        });
    }
    template <class Consumer>
    __device__ __forceinline__ static void begin_scores(Scores& S, Consumer& c) {
        const auto K_j = c.first.take();
        c.turns.wait();
        tile::begin_multiply_transposed(S, tile::first_columns<d>(c.own()), tile::first_columns<d>(K_j));
    }
};

}  // namespace flashladder::attention
