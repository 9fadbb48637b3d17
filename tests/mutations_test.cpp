// Which small mistakes are made of a kernel's text.
#include "mutations.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

namespace flashladder {
namespace {

/// The body of a kernel with each mistake, one in a line.
std::set<std::string> bodies(const std::string& body) {
    const std::string before = "__global__ void kernel(float* O, int N) {\n", text = before + body + "\n}\n";
    std::set<std::string> all;
    for (const Mutation& m : mutations(text)) {
        const std::string changed = mutated(text, m);
        all.insert(changed.substr(before.size(), changed.size() - before.size() - 3));
    }
    return all;
}
using Set = std::set<std::string>;

TEST_CASE("mutations: operators with spaces around them, and what they add or multiply by") {
    CHECK(bodies("const auto a = t + u * f(d)[e];") == Set{"const auto a = t - u * f(d)[e];", "const auto a = t;",
                                                           "const auto a = t + u + f(d)[e];", "const auto a = t + u;"});
    CHECK(bodies("a = t < u;") == Set{"a = t <= u;", "a = t < u - 1;", "a = t < u + 1;", ";"});
    CHECK(bodies("const auto a = t ? u : f(v, w);") ==
          Set{"const auto a = t ? f(v, w) : u;", "const auto a = t ? u : u;", "const auto a = t ? f(v, w) : f(v, w);",
              "const auto a = t ? u : f(w, v);"});
    CHECK(bodies("const auto a = f(t ? u : v ? w : z, a);").contains("const auto a = f(t ? v ? w : z : u, a);"));
    CHECK(bodies("const auto a = f(t ? v ? w : z : u, a);").contains("const auto a = f(t ? u : v ? w : z, a);"));
    CHECK(bodies("auto* p = g<d>(-a, *t);") == Set{"auto* p = g<d>(*t, -a);"});
}

TEST_CASE("mutations: numbers") {
    CHECK(bodies("const auto a = 0;") == Set{"const auto a = 1;"});
    CHECK(bodies("const auto a = 15u;") == Set{"const auto a = 16u;", "const auto a = 14u;"});
    CHECK(bodies("const auto a = 16;") == Set{"const auto a = 32;", "const auto a = 8;"});
    CHECK(bodies("const auto a = 0.5f;") == Set{"const auto a = (2 * 0.5f);"});
    CHECK(bodies("const auto a = 1e-3f;") == Set{"const auto a = (2 * 1e-3f);"});
    CHECK(bodies("const auto a = 0xFF;").empty());
}

TEST_CASE("mutations: names of a pair, indices, arguments") {
    CHECK(bodies("const auto V_smem = t, a = K_smem;") == Set{"const auto V_smem = t, a = V_smem;"});
    CHECK(bodies("const auto a = K_smem;").empty());  // no V_smem is known
    CHECK(bodies("const auto a = ptx::barrier_wait;") == Set{"const auto a = ptx::barrier_arrive;"});
    CHECK(bodies("const auto a = min(t.x);") == Set{"const auto a = max(t.x);", "const auto a = min(t.y);"});
    CHECK(bodies("const auto a = b[N][t];") == Set{"const auto a = b[t][N];"});
    CHECK(bodies("const auto a = f(g(t, u), v);") ==
          Set{"const auto a = f(v, g(t, u));", "const auto a = f(g(u, t), v);"});
}

TEST_CASE("mutations: a name of another function is none, of the file it is one, of the same value it is no mistake") {
    const auto names = [](const std::string& value) {
        return mutations("constexpr int B_r = 8, B_c = " + value +
                         ";\n__device__ void f(int row) {}\n__device__ void g(int column) { a(B_r, column); }\n");
    };
    const auto has = [](const std::vector<Mutation>& all, const char* what) {
        return std::ranges::count(all, what, &Mutation::what) == 1;
    };
    CHECK(has(names("9"), "'B_c' for 'B_r'"));
    CHECK_FALSE(has(names("8"), "'B_c' for 'B_r'"));
    CHECK_FALSE(has(names("9"), "'row' for 'column'"));
}

TEST_CASE("mutations: conditions and statements") {
    CHECK(bodies("if (a) f();\n__syncthreads();") ==
          Set{"if (!(a)) f();\n__syncthreads();", "if (true || (a)) f();\n__syncthreads();",
              "if (a) ;\n__syncthreads();", "if (a) __syncthreads();\nf();", "if (a) f();\n;"});
}

TEST_CASE("mutations: the head of a loop is no statement") {
    CHECK(bodies("for (int t = 0; t != n; t = next(t)) f();") == Set{"for (int t = 1; t != n; t = next(t)) f();",
                                                                     "for (int t = 0; t == n; t = next(t)) f();",
                                                                     "for (int t = 0; t != n; t = next(t)) ;"});
    CHECK(bodies("for (t(); u(); ++v)\n    ++w;") == Set{"for (t(); u(); v += 2)\n    ++w;"});
}

TEST_CASE("mutations: comments, strings, the host's code and lines of the preprocessor stay what they are") {
    CHECK(bodies("// a + 1\n/* b < 2 */ const char* t = \"1 + 2\";\n#pragma unroll 4").empty());
    CHECK(mutations("void launch() { a = b + 1; }\n").empty());
}

TEST_CASE("mutations: answers come first, wherever they are") {
    const std::string text =
        "struct Config {\n"
        "    // EXERCISE 5.1 How many?\n"
        "    // STARTER static constexpr int slots = 1;\n"
        "    static constexpr int slots = 2 + t;\n"
        "    // END 5.1\n"
        "};\n"
        "__device__ void f() {\n"
        "    a = 1;\n"
        "    a = 2;\n"
        "    a = 3;\n"
        "}\n";
    const auto all = mutations(text);
    const auto of_answer = static_cast<std::size_t>(std::ranges::count(all, "5.1", &Mutation::exercise));
    CHECK(of_answer == 4);  // 3, 1, -, no term
    REQUIRE(all.size() > 8);
    const auto chosen = most_telling(all, 6);
    CHECK(chosen.size() == 6);
    CHECK(std::ranges::count(chosen, "5.1", &Mutation::exercise) == 4);
    CHECK(chosen.front().line == 4);
    CHECK(most_telling(all, 2).size() == 4);
    CHECK(most_telling(all, 1000).size() == all.size());
}

}  // namespace
}  // namespace flashladder
