// What tools/ladder/translate.cpp makes of CUDA's own syntax, piece by piece. That the results compile and run is
// seen by check_program.cpp.
#include "translate.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace flashladder {
namespace {

/// What a launch becomes.
std::string launch(const std::string& kernel, const std::string& configuration) {
    return "::emulator::prepare(FLASHLADDER_KERNEL(" + kernel + ")," + configuration + ")";
}

TEST_CASE("launches: every way to name a kernel") {
    for (const std::string kernel : {"k",
                                     "a::k",
                                     "::k",
                                     "::a::b::k",
                                     "k<float>",
                                     "k<float, 32>",
                                     "a::k<T, (n >> 1)>",
                                     "k<(3 > 2)>",
                                     "k<A<B<C>>>",
                                     "A<int>::k<3>",
                                     "table[i]",
                                     "table[i + 1]",
                                     "(*pointer)",
                                     "(x ? k : j)",
                                     "object.kernel",
                                     "object->kernel",
                                     "find(3)",
                                     "table[i].kernel",
                                     "object.template kernel<3>",
                                     "k<sizeof(a[0])>",
                                     "k /* why */ "}) {
        CHECK(translate(kernel + "<<<g, b>>>(x, 1);") == launch(kernel, "g, b") + "(x, 1);");
        CHECK(translate("if (x) " + kernel + "<<<g, b>>>(x);") == "if (x) " + launch(kernel, "g, b") + "(x);");
        CHECK(translate("x; return " + kernel + "<<<g, b>>>();") == "x; return " + launch(kernel, "g, b") + "();");
    }
}

TEST_CASE("launches: every configuration") {
    for (const std::string configuration :
         {"1, 32", "dim3(8, 8), dim3(16, 16)", "{1, 2}, {3}", "n >> 3, 1 << 5",
          "(n + 31) / 32, 32, 4 * sizeof(float), s", "f<3>(), b", "grid(A<B<int>>::n), b", "a > b ? a : b, 32",
          "g,\n b", "g, [&] { return n; }()", "\"<<<>>>\", 1"})
        CHECK(translate("k<<<" + configuration + ">>>(x);") == launch("k", configuration) + "(x);");
    CHECK(translate("k<<<n, size<T>>>>(x);") == launch("k", "n, size<T>") + "(x);");
    CHECK(translate("k<<<1, 2>>> (x);") == launch("k", "1, 2") + " (x);");
    CHECK(translate("j<<<1, 2>>>(x); k<<<3, 4>>>(y);") == launch("j", "1, 2") + "(x); " + launch("k", "3, 4") + "(y);");
    CHECK(translate("k << <1, 2 >> > (x);") == launch("k ", " 1, 2 ") + "  (x);");
    CHECK(translate("CHECK(k<<<1, 2>>>(x));") == "CHECK(" + launch("k", "1, 2") + "(x));");
}

TEST_CASE("what only looks like a launch stays") {
    for (const std::string text :
         {"a << b; a >> b; x = c >> d >> e;", "\"k<<<1, 2>>>(x)\"", "R\"(k<<<1, 2>>>(x))\"",
          "u8R\"--(k<<<1, 2>>>(x) )\" )--\"", "// k<<<1, 2>>>(x)", "// a \\\n k<<<1, 2>>>(x)", "/* k<<<1, 2>>>(x) */",
          "'\"' k '\"'", "'\\'' \"<<<\" ", "1'000'000 + '<'", "std::vector<std::vector<std::vector<int>>> v(3);",
          "operator<<<T>(out, x)", "\"a\\\"<<<\"", "#error k<<<1\n", "x <<< y", "a = b < c; d > (e);"})
        CHECK(translate(text) == text);
}

TEST_CASE("macros: bodies are translated, and end with their lines") {
    CHECK(translate("#define RUN(k, ...) \\\n  k<<<1, 2>>>( \\\n __VA_ARGS__)\nRUN(f, x);") ==
          "#define RUN(k, ...) \\\n  " + launch("k", "1, 2") + "( \\\n __VA_ARGS__)\nRUN(f, x);");
    CHECK(translate("#define A x\n(*f)<<<1, 2>>>(x);") == "#define A x\n" + launch("(*f)", "1, 2") + "(x);");
    CHECK(translate("k<<<1,\n#ifdef A\n2\n#else\n3\n#endif\n>>>(x);") ==
          launch("k", "1,\n#ifdef A\n2\n#else\n3\n#endif\n") + "(x);");
}

TEST_CASE("dynamic shared memory of a function") {
    const auto in_function = [](const std::string& text) { return translate("void f() { " + text + " }"); };
    const auto same_but_spaces = [](std::string a, std::string b) {
        for (std::string* text : {&a, &b}) std::erase(*text, ' ');
        return a == b;
    };
    const std::pair<const char*, const char*> cases[] = {
        {"extern __shared__ float s[];", "auto* s = ::emulator::dynamic_array<float>();"},
        {"__shared__ extern float s[];", "auto* s = ::emulator::dynamic_array<float>();"},
        {"extern volatile __shared__ float s[];", "auto* s = ::emulator::dynamic_array<volatile float>();"},
        {"extern __shared__ __align__(16) unsigned char s[];", "auto* s = ::emulator::dynamic_array<unsigned char>();"},
        {"extern __align__(sizeof(T)) __shared__ T s[];", "auto* s = ::emulator::dynamic_array<T>();"},
        {"extern __shared__ alignas(128) a::T<int> s[];", "auto* s = ::emulator::dynamic_array<a::T<int>>();"},
        {"extern __shared__ float s[n];", "auto* s = ::emulator::dynamic_array<float>();"},
        {"extern __shared__ float s[][32 + 1];", "auto* s = ::emulator::dynamic_array<float [32 + 1]>();"},
        {"extern __shared__ int a[], b[];",
         "auto* a = ::emulator::dynamic_array<int>(); auto* b = ::emulator::dynamic_array<int>();"},
    };
    for (const auto& [cuda, cpp] : cases)
        CHECK_MESSAGE(same_but_spaces(in_function(cuda), "void f() { " + std::string(cpp) + " }"), in_function(cuda));
}

TEST_CASE("dynamic shared memory of a namespace, and where the one ends and the other begins") {
    const auto has = [](const std::string& cuda, const char* words) {
        std::string cpp = translate(cuda);
        std::erase(cpp, ' ');
        return cpp.find(words) != std::string::npos;
    };
    const char *object = "DynamicArray<int>s{};", *pointer = "auto*s=";
    CHECK(has("extern __shared__ int s[];", object));
    CHECK(has("namespace a::b { extern __shared__ int s[]; }", object));
    CHECK(has("namespace { extern __shared__ int s[]; }", object));
    CHECK(has("extern \"C\" { extern __shared__ int s[]; }", object));
    CHECK(has("void f() {} extern __shared__ int s[];", object));
    CHECK(has("namespace a { void f() { extern __shared__ int s[]; } }", pointer));
    CHECK(has("struct A { operator int*() { extern __shared__ int s[]; } };", pointer));
    CHECK(has("#ifdef A\nvoid f() {\n#else\nvoid f(int) {\n#endif\nextern __shared__ int s[]; }", pointer));
    CHECK(has("#ifdef A\nvoid f() {\n#else\nvoid f(int) {\n#endif\n} extern __shared__ int s[];", object));
    CHECK(has("#define S extern __shared__ int s[];\n", pointer));
}

TEST_CASE("static shared memory stays, but for words that may not stand there") {
    CHECK(translate("__shared__ float s[32];") == "__shared__ float s[32];");
    CHECK(translate("static __shared__ float s[32];") == " __shared__ float s[32];");
    CHECK(translate("__shared__ alignas(16) float s[32];") == "__shared__ __align__(16) float s[32];");
    CHECK(translate("extern int x; __shared__ float s[32];") == "extern int x; __shared__ float s[32];");
}

TEST_CASE("a kernel with launch bounds looks itself") {
    CHECK(translate("template <int n> __global__ void __launch_bounds__(n * 32, 1) f(float* x = nullptr) { g(); }") ==
          "template <int n> __global__ void __launch_bounds__(n * 32, 1) f(float* x = nullptr) { "
          "::emulator::check_launch_bounds(n * 32 , 1 ); g(); }");
    for (const char* same : {"__global__ void __launch_bounds__(64) f(float*); void g() {}", "#define B __launch_bounds__(64)\n"})
        CHECK(translate(same) == same);
}

TEST_CASE("inline PTX keeps its words and loses its operands") {
    CHECK(translate("asm volatile(\"mov %0, 1;\" : \"=r\"(x) : \"r\"(y));").find("inline_ptx  (\"mov %0, 1;\"") ==
          std::string::npos);
    CHECK(translate("asm(\"bar.sync 0;\");") == "::emulator::inline_ptx(\"bar.sync 0;\");");
    CHECK(translate("asm(\"a\"::\"r\"(x));") == "::emulator::inline_ptx(\"a\");");
}

TEST_CASE("includes are where they are said to be") {
    const auto beside = [](std::string_view name, bool in_quotes) -> std::optional<std::string> {
        if (in_quotes && name == "k.cuh") return "/x/k.cuh";
        return std::nullopt;
    };
    CHECK(translate("#include \"k.cuh\"\n", beside) == "#include \"/x/k.cuh\"\n");
    CHECK(translate("  #  include \"k.cuh\" // k\n", beside) == "  #  include \"/x/k.cuh\" // k\n");
    CHECK(translate("#include <k.cuh>\n#include \"j.cuh\"\n", beside) == "#include <k.cuh>\n#include \"j.cuh\"\n");
    CHECK(translate("#include K\n", beside) == "#include K\n");
    CHECK(translate("#include <k.cuh>\n", [](auto, bool) { return "/y"; }) == "#include \"/y\"\n");
}

TEST_CASE("lines stay where they are, whatever the text") {
    for (const std::string text :
         {"extern\n__shared__\nfloat\ns[\n]\n;", "k\n<<<1\n,2\n>>>\n(x);", "asm\nvolatile(\n\"a\"\n:\n:\n);",
          "\xEF\xBB\xBFint x;\n", "\"unterminated\nk<<<1, 2", "R\"(never ends\n", "/* never ends\n", "k<<<1, 2>>>",
          "<<<", ">>>(", "k<<<(", "#include \"", "extern __shared__ float", "asm(", "}}}", "'", "k>>><<<1>>>("}) {
        const std::string result = translate(text);
        CHECK(std::count(result.begin(), result.end(), '\n') == std::count(text.begin(), text.end(), '\n'));
    }
}

}  // namespace
}  // namespace flashladder
