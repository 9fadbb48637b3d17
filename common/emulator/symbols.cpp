#include "symbols.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

namespace emulator {
namespace {

using SectionHeader = ElfW(Shdr);
using ElfSymbol = ElfW(Sym);

struct OwnFile {
    std::uintptr_t load_address = 0;  // 0 for a program that is not position independent
    std::string path;
};

/// The program or library that this function is in.
OwnFile own_file() {
    OwnFile module;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
            const auto here = reinterpret_cast<std::uintptr_t>(&own_file);
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto& header = info->dlpi_phdr[i];
                if (header.p_type != PT_LOAD || here - info->dlpi_addr - header.p_vaddr >= header.p_memsz) continue;
                *static_cast<OwnFile*>(data) = {info->dlpi_addr,
                                               info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe"};
                return 1;
            }
            return 0;
        },
        &module);
    return module;
}

template <class T>
std::vector<T> read(std::ifstream& file, std::size_t offset, std::size_t bytes) {
    std::vector<T> result(bytes / sizeof(T));
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(reinterpret_cast<char*>(result.data()), static_cast<std::streamsize>(result.size() * sizeof(T)));
    if (!file) result.clear();
    return result;
}

void sort_and_deduplicate(std::vector<Symbol>& symbols) {
    std::sort(symbols.begin(), symbols.end(), [](const Symbol& a, const Symbol& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.bytes > b.bytes;
    });
    const auto same = [](const Symbol& a, const Symbol& b) { return a.begin == b.begin; };
    symbols.erase(std::unique(symbols.begin(), symbols.end(), same), symbols.end());
}

Symbols read_symbols() {
    Symbols symbols;
    const OwnFile module = own_file();
    std::ifstream file(module.path, std::ios::binary);
    const auto header = read<ElfW(Ehdr)>(file, 0, sizeof(ElfW(Ehdr)));
    if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0) return symbols;
    const auto sections =
        read<SectionHeader>(file, header[0].e_shoff, header[0].e_shnum * sizeof(SectionHeader));
    static std::vector<char> names, section_names;  // what the symbols point into
    if (header[0].e_shstrndx >= sections.size()) return symbols;
    const SectionHeader& names_of_sections = sections[header[0].e_shstrndx];
    section_names = read<char>(file, names_of_sections.sh_offset, names_of_sections.sh_size);
    const auto table = std::find_if(sections.begin(), sections.end(),
                                    [](const SectionHeader& section) { return section.sh_type == SHT_SYMTAB; });
    if (table == sections.end()) return symbols;
    const SectionHeader& strings = sections[table->sh_link];
    names = read<char>(file, strings.sh_offset, strings.sh_size);
    for (const ElfSymbol& symbol : read<ElfSymbol>(file, table->sh_offset, table->sh_size)) {
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= sections.size() || symbol.st_size == 0 ||
            symbol.st_name >= names.size())
            continue;
        const char* name = names.data() + symbol.st_name;
        const int type = ELF64_ST_TYPE(symbol.st_info);
        const SectionHeader& section = sections[symbol.st_shndx];
        const std::string_view section_name = section_names.data() + section.sh_name;
        const Symbol found{module.load_address + symbol.st_value, symbol.st_size, name, section_name};
        if (type == STT_TLS) symbols.thread_locals.push_back({symbol.st_value, symbol.st_size, name, section_name});
        if (type == STT_FUNC) symbols.functions.push_back(found);
        // Tables of virtual functions and guards of local variables are the compiler's own; threadIdx is the emulator's.
        const bool is_own = std::strncmp(name, "_ZT", 3) == 0 || std::strncmp(name, "_ZGV", 4) == 0 ||
                            std::strncmp(name, "emulator_", 9) == 0;
        if (type == STT_OBJECT && section.sh_flags & SHF_WRITE && !is_own) symbols.variables.push_back(found);
    }
    for (auto* list : {&symbols.functions, &symbols.variables, &symbols.thread_locals}) sort_and_deduplicate(*list);
    return symbols;
}

}  // namespace

const Symbols& Symbols::instance() {
    static const Symbols symbols = read_symbols();
    return symbols;
}

const Symbol* find_symbol_before(const std::vector<Symbol>& symbols, std::uintptr_t address) {
    const auto behind = std::upper_bound(symbols.begin(), symbols.end(), address,
                                         [](std::uintptr_t a, const Symbol& symbol) { return a < symbol.begin; });
    return behind == symbols.begin() ? nullptr : &*(behind - 1);
}

const Symbol* find_symbol(const std::vector<Symbol>& symbols, std::uintptr_t address) {
    const Symbol* symbol = find_symbol_before(symbols, address);
    return symbol && symbol->contains(address) ? symbol : nullptr;
}

std::vector<Symbol> thread_locals_of(const void* entry) {
    const Symbol* function = find_symbol(Symbols::instance().functions, reinterpret_cast<std::uintptr_t>(entry));
    std::vector<Symbol> result;
    if (!function || std::strncmp(function->name, "_Z", 2) != 0) return result;
    // A variable of the function _Z4sums is _ZZ4sumsE4tile.
    const std::string prefix = std::string("_ZZ") + (function->name + 2) + "E";
    for (const Symbol& variable : Symbols::instance().thread_locals)
        if (std::strncmp(variable.name, prefix.c_str(), prefix.size()) == 0) result.push_back(variable);
    return result;
}

// No regular expression: a thread's stack is too small for the standard library's.
bool is_library_function(std::string_view name) {
    for (const std::string_view begin : {"_ZNSt", "_ZNKSt", "_ZSt", "_ZN8emulator", "__tsan_atomic"})
        if (name.starts_with(begin)) return true;
    if (!name.ends_with('_'))
        return false;  // C1ERKS_ or C2EOS1_, a constructor from the same class; aSERKS0_, operator=
    name.remove_suffix(1);
    while (!name.empty() && name.back() != 'S' && (std::isdigit(name.back()) || std::isupper(name.back())))
        name.remove_suffix(1);
    for (const std::string_view end : {"C1ERKS", "C2ERKS", "C1EOS", "C2EOS", "aSERKS", "aSEOS"})
        if (name.ends_with(end)) return true;
    return false;
}

std::string name_of(const Symbol& variable) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> words(abi::__cxa_demangle(variable.name, nullptr, nullptr, &status),
                                                       std::free);
    const std::string name = words ? words.get() : variable.name;
    const std::size_t colon = name.rfind("::");
    return colon == std::string::npos ? name : name.substr(colon + 2);
}

}  // namespace emulator
