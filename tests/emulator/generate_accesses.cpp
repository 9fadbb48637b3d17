// Writes small kernels, each of which moves one value from device memory to device memory: types, ways to read and ways
// to write are drawn. accesses.cpp runs them.
//   generate_accesses SEED COUNT > FILE.cu      defines accesses::programs(), which returns them
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

std::mt19937_64 random_bits;
std::size_t draw(std::size_t n) { return random_bits() % n; }
template <std::size_t n>
std::string one_of(const std::array<const char*, n>& choices) {
    return choices[draw(n)];
}

/// What can be said of a value of the type, which has no padding: all of its bytes are read and written.
struct Type {
    std::string definition, name;
    bool scalar = false;
    std::vector<std::string> members;  // x, or x[0] where x is an array
    std::size_t bindings = 0;          // names that a structured binding has for it
    bool has_methods = false;
};

struct Scalar {
    const char* name;
    std::size_t bytes;
};
constexpr std::array<Scalar, 9> scalars = {{{"char", 1}, {"unsigned char", 1}, {"short", 2}, {"int", 4}, {"unsigned", 4},
                                            {"float", 4}, {"double", 8}, {"long long", 8}, {"std::uint64_t", 8}}};

Type draw_scalar() { return {"", scalars[draw(scalars.size())].name, true, {}, 0, false}; }

Type draw_vector() {
    static constexpr std::array<const char*, 9> names = {"float2", "float3", "float4", "int2", "int3",
                                                         "int4",   "uint2",  "uint3",  "uint4"};
    Type type{"", one_of(names), false, {"x", "y"}, 0, false};
    for (const char* more : {"z", "w"})
        if (type.members.size() < std::size_t(type.name.back() - '0')) type.members.push_back(more);
    type.bindings = type.members.size();
    return type;
}

Type draw_array() {
    const Scalar element = scalars[draw(scalars.size())];
    const std::size_t n = 1 + draw(16 / element.bytes);
    Type type{"", fmt::format("std::array<{}, {}>", element.name, n), false, {}, n, false};
    for (std::size_t i = 0; i < n; ++i) type.members.push_back(fmt::format("at({})", i));
    return type;
}

/// Members from the largest to the smallest, and as many of the smallest as make the size a multiple of the largest.
Type draw_struct() {
    Type type{"struct Type {\n", "Type", false, {}, 0, true};
    std::size_t bytes = 0, largest = 0, next = 8;
    const auto add = [&](const Scalar& scalar, std::size_t n) {
        const std::string name = fmt::format("m{}", type.bindings++);
        const bool array = n > 1 || draw(4) == 0;
        type.definition += array ? fmt::format("    {} {}[{}];\n", scalar.name, name, n)
                                 : fmt::format("    {} {};\n", scalar.name, name);
        for (std::size_t i = 0; i < n; ++i) type.members.push_back(array ? fmt::format("{}[{}]", name, i) : name);
        bytes += scalar.bytes * n;
        if (largest == 0) largest = scalar.bytes;
        next = scalar.bytes;
    };
    const std::size_t most = draw(4) == 0 ? 48 : 16;  // those of 16 bytes travel in registers
    const std::size_t parts = 1 + draw(4);
    for (std::size_t part = 0; part < parts; ++part) {
        const Scalar& scalar = scalars[draw(scalars.size())];
        if (scalar.bytes > next || bytes + scalar.bytes > most) continue;
        add(scalar, 1 + draw((most - bytes) / scalar.bytes));
    }
    if (bytes == 0) add(scalars[0], 1 + draw(16));
    if (bytes % largest != 0) add(scalars[0], largest - bytes % largest);
    type.definition +=
        "    Type get() const { return *this; }\n"
        "    void set(Type v) { *this = v; }\n"
        "    void set_ref(const Type& v) { *this = v; }\n"
        "};\n";
    return type;
}

Type draw_type() {
    switch (draw(5)) {
        case 0:
            return draw_scalar();
        case 1:
            return draw_vector();
        case 2:
            return draw_array();
        default:
            return draw_struct();
    }
}

std::string bindings(const Type& type) {
    std::string names;
    for (std::size_t i = 0; i < type.bindings; ++i) names += fmt::format("{}b{}", i > 0 ? ", " : "", i);
    return names;
}

/// Lines that declare `Value v`, which is `in[i]`.
std::string draw_read(const Type& type) {
    for (;;) switch (draw(17)) {
            case 0:
                return "    Value v = in[i];\n";
            case 1:
                return "    Value v = by_value(in[i]);\n";
            case 2:
                return "    Value v = by_reference(in[i]);\n";
            case 3:
                return "    Value v = by_pointer(in + i);\n";
            case 4:
                return "    Value v = by_const_value(in[i], i);\n";
            case 5:
                return "    const auto same = [](Value w) { return w; };\n    Value v = same(in[i]);\n";
            case 6:
                return "    const auto kept = [w = in[i]] { return w; };\n    Value v = kept();\n";
            case 7:
                return "    Value v;\n    std::memcpy(&v, in + i, sizeof v);\n";
            case 8:
                return "    Value v;\n    std::memcpy(&v, in + i, n);\n";
            case 9:
                return "    Value v = n > 0 ? in[i] : in[i + 1];\n";
            case 10:
                return "    Value (*call)(Value, int) = n > 0 ? by_const_value : recursive;\n    Value v = call(in[i], i);\n";
            case 11:
                return "    Value v = recursive(in[i]);\n";
            case 12:
                return "    const Value& whole = in[i];\n    Value v(whole);\n";
            case 13:
                if (!type.scalar) break;
                return "    Value v = *static_cast<volatile Value*>(in + i);\n";
            case 14:
                if (type.members.empty()) break;
                {
                    std::string text = "    Value v;\n";
                    for (const auto& m : type.members) text += fmt::format("    v.{0} = in[i].{0};\n", m);
                    return text;
                }
            case 15:
                if (type.bindings == 0) break;
                return fmt::format(
                    "    auto [{0}] = in[i];\n    Value v = together({0});\n", bindings(type));
            case 16:
                if (!type.has_methods) break;
                return "    Value v = in[i].get();\n";
        }
}

/// Lines that store `v` to `out[j]`.
std::string draw_write(const Type& type) {
    for (;;) switch (draw(14)) {
            case 0:
                return "    out[j] = v;\n";
            case 1:
                return "    out[j] = by_value(v);\n";
            case 2:
                return "    put(out[j], v);\n";
            case 3:
                return "    put_reference(out[j], v);\n";
            case 4:
                return "    std::memcpy(out + j, &v, sizeof v);\n";
            case 5:
                return "    std::memcpy(out + j, &v, n);\n";
            case 6:
                return "    new (out + j) Value(v);\n";
            case 7:
                return "    reference(out, j) = v;\n";
            case 8:
                return "    *(out + j) = [&] { return v; }();\n";
            case 9:
                return "    out[j] = recursive(v);\n";
            case 10:
                if (!type.scalar) break;
                return "    *static_cast<volatile Value*>(out + j) = v;\n";
            case 11:
                if (type.members.empty()) break;
                {
                    std::string text;
                    for (const auto& m : type.members) text += fmt::format("    out[j].{0} = v.{0};\n", m);
                    return text;
                }
            case 12:
                if (!type.has_methods) break;
                return "    out[j].set(v);\n";
            case 13:
                if (!type.has_methods) break;
                return "    out[j].set_ref(v);\n";
        }
}

std::string helpers(const Type& type) {
    static constexpr std::array<const char*, 2> inlining = {"[[gnu::noinline]] ", "inline "};
    std::string text = "using Value = " + type.name + ";\n";
    for (const char* helper :
         {"Value by_value(Value v) { return v; }", "Value by_const_value(const Value v, int) { return v; }",
          "Value by_reference(const Value& v) { return v; }", "Value by_pointer(const Value* v) { return *v; }",
          "void put(Value& to, Value v) { to = v; }", "void put_reference(Value& to, const Value& v) { to = v; }",
          "Value& reference(Value* p, int i) { return p[i]; }"})
        text += "[[maybe_unused]] __device__ " + one_of(inlining) + helper + "\n";
    text += "[[maybe_unused]] __device__ Value recursive(Value v, int depth = 2) { "
            "return depth > 0 ? recursive(v, depth - 1) : v; }\n";
    if (type.bindings > 0) {
        // The parts of a binding, members or elements, put together again; arrays element by element.
        text += "template <class... Parts>\n__device__ Value together(const Parts&... parts) {\n    Value v;\n"
                "    char* to = reinterpret_cast<char*>(&v);\n"
                "    ((std::memcpy(to, &parts, sizeof parts), to += sizeof parts), ...);\n    return v;\n}\n";
    }
    return text;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    random_bits.seed(std::strtoull(argv[1], nullptr, 10));
    const int count = std::atoi(argv[2]);
    std::string text = "#include <array>\n#include <cstring>\n#include <new>\n\n#include \"emulator/accesses.h\"\n\n"
                       "namespace accesses {\nnamespace {\n";
    std::string list;
    const auto line = [&] { return 1 + std::count(text.begin(), text.end(), '\n'); };
    for (int i = 0; i < count; ++i) {
        const Type type = draw_type();
        const auto first = line();
        text += fmt::format("namespace program_{} {{\n{}{}", i, type.definition, helpers(type));
        text += fmt::format("__global__ void kernel(Value* in, Value* out, int i, int j, [[maybe_unused]] int n) {{\n{}{}}}\n}}\n",
                            draw_read(type), draw_write(type));
        list += fmt::format("        make_program<program_{0}::Value>(program_{0}::kernel, {0}, {1}, {2}),\n", i, first,
                            line() - 1);
    }
    text += fmt::format("}}  // namespace\n\nstd::vector<Program> programs() {{\n    return {{\n{}    }};\n}}\n"
                        "}}  // namespace accesses\n",
                        list);
    std::fputs(text.c_str(), stdout);
}
