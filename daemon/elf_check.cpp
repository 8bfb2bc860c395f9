#include "elf_check.hpp"

#include <elf.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace shared_tensor::daemon {

namespace {

using Header = ElfW(Ehdr);
using Segment = ElfW(Phdr);
using Entry = ElfW(Dyn);

#if defined(__x86_64__)
constexpr auto kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr auto kMachine = EM_AARCH64;
#else
constexpr auto kMachine = EM_NONE;  // any
#endif

constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
constexpr unsigned char kByteOrder = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;

/// Whether `count` bytes from `first` on lie within `size` bytes. Computed without an overflow.
bool lies_within(std::uint64_t first, std::uint64_t count, std::uint64_t size) {
    return first <= size && count <= size - first;
}

std::string cut(const char* part, std::uint64_t size) {
    return std::string("the file is cut off: its ") + part + " ends beyond the file's " + std::to_string(size) +
           " bytes. Build or copy it again";
}

class Library {
public:
    Library(const ReadAt& read, std::uint64_t size) : read_(read), size_(size) {}

    std::string rejection() {
        for (const auto check : {&Library::header_rejection, &Library::sections_rejection, &Library::segments_rejection,
                                 &Library::dynamic_rejection}) {
            if (std::string rejection = (this->*check)(); !rejection.empty()) return rejection;
        }
        return {};
    }

    /// Only if there is no fault.
    ElfNeeds needs() const {
        ElfNeeds needs;
        for (const std::uint64_t name : needed_)
            needs.libraries.push_back(text_at(name));
        for (const std::uint64_t list : folders_) {
            const std::string folders = text_at(list);
            for (std::size_t begin = 0; begin < folders.size();) {
                const std::size_t end = std::min(folders.find(':', begin), folders.size());
                needs.folders.push_back(folders.substr(begin, end - begin));
                begin = end + 1;
            }
        }
        return needs;
    }

private:
    /// The text at `offset` in the table of names; empty if it is longer than any path.
    std::string text_at(std::uint64_t offset) const {
        constexpr std::size_t kMost = 64 << 10;
        std::string text;
        const auto* const found = segment_at(names_);
        if (found == nullptr || !lies_within(offset, 1, size_)) return text;
        for (std::uint64_t at = names_ - found->p_vaddr + found->p_offset + offset; text.size() < kMost; ++at) {
            char character = 0;
            if (!read(at, character)) break;
            if (character == 0) return text;
            text += character;
        }
        return {};
    }

    template <class Record>
    bool read(std::uint64_t offset, Record& record) const {
        return lies_within(offset, sizeof record, size_) &&
               read_(offset, std::as_writable_bytes(std::span(&record, 1)));
    }

    std::string header_rejection() {
        const bool whole = read(0, header_);
        if (!whole && size_ >= sizeof header_) return "the file cannot be read";
        if (!whole || std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0) return "not a shared library (no ELF file)";
        const bool here = header_.e_ident[EI_CLASS] == kClass && header_.e_ident[EI_DATA] == kByteOrder &&
                          (kMachine == EM_NONE || header_.e_machine == kMachine);
        if (!here) return "built for another kind of processor than this machine has";
        if (header_.e_ident[EI_VERSION] != EV_CURRENT || header_.e_version != EV_CURRENT)
            return "not a shared library (an ELF file of an unknown version)";
        if (header_.e_type != ET_DYN) return "not a shared library (an object file or a program: link it with -shared)";
        return {};
    }

    /// dlopen() does not need this table, but it is usually the last part of the file, so it shows if the file was cut.
    std::string sections_rejection() {
        if (header_.e_shoff == 0) return {};
        if (header_.e_shnum > 0 && header_.e_shentsize != sizeof(ElfW(Shdr))) return "its section table is damaged";
        const std::uint64_t bytes = std::uint64_t{header_.e_shnum} * sizeof(ElfW(Shdr));
        return lies_within(header_.e_shoff, bytes, size_) ? "" : cut("section table", size_);
    }

    std::string segments_rejection() {
        if (header_.e_phnum == 0 || header_.e_phnum == PN_XNUM || header_.e_phentsize != sizeof(Segment))
            return "its program headers are damaged";
        const std::uint64_t bytes = std::uint64_t{header_.e_phnum} * sizeof(Segment);
        if (!lies_within(header_.e_phoff, bytes, size_)) return cut("program header table", size_);
        for (std::uint64_t i = 0; i < header_.e_phnum; ++i) {
            Segment segment{};
            if (!read(header_.e_phoff + i * sizeof segment, segment)) return "the file cannot be read";
            if (std::string rejection = segment_rejection(segment); !rejection.empty()) return rejection;
        }
        return loaded_.empty() ? "it has no part to load: its program headers are damaged" : "";
    }

    std::string segment_rejection(const Segment& segment) {
        if (segment.p_type == PT_DYNAMIC) dynamic_ = segment;
        if (segment.p_type != PT_LOAD) return {};
        if (!lies_within(segment.p_offset, segment.p_filesz, size_)) return cut("code or data", size_);
        constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::ptrdiff_t>::max());
        const bool sane = segment.p_filesz <= segment.p_memsz && lies_within(segment.p_vaddr, segment.p_memsz, kMost) &&
                          (segment.p_align <= 1 || std::has_single_bit(segment.p_align)) &&
                          (segment.p_align <= 1 || (segment.p_vaddr - segment.p_offset) % segment.p_align == 0) &&
                          (loaded_.empty() || segment.p_vaddr >= loaded_.back().p_vaddr + loaded_.back().p_memsz);
        if (!sane) return "its program headers are damaged";
        loaded_.push_back(segment);
        return {};
    }

    const Segment* segment_at(std::uint64_t address, std::uint64_t bytes = 1) const {
        const auto found = std::find_if(loaded_.begin(), loaded_.end(), [&](const Segment& segment) {
            return address >= segment.p_vaddr && lies_within(address - segment.p_vaddr, bytes, segment.p_memsz);
        });
        return found == loaded_.end() ? nullptr : &*found;
    }
    bool is_loaded(std::uint64_t address, std::uint64_t bytes) const { return segment_at(address, bytes) != nullptr; }

    /// The loader uses the addresses in this table without any check.
    std::string dynamic_rejection() {
        static const std::string kDamaged = "its dynamic section is damaged";
        if (!dynamic_ || !is_loaded(dynamic_->p_vaddr, dynamic_->p_filesz) ||
            !lies_within(dynamic_->p_offset, dynamic_->p_filesz, size_))
            return kDamaged;
        bool has_names = false, has_symbols = false, ends = false;
        for (std::uint64_t at = 0; !ends && lies_within(at, sizeof(Entry), dynamic_->p_filesz); at += sizeof(Entry)) {
            Entry entry{};
            if (!read(dynamic_->p_offset + at, entry)) return "the file cannot be read";
            ends = entry.d_tag == DT_NULL;
            has_names |= entry.d_tag == DT_STRTAB;
            if (entry.d_tag == DT_STRTAB) names_ = entry.d_un.d_ptr;
            if (entry.d_tag == DT_NEEDED) needed_.push_back(entry.d_un.d_val);
            if (entry.d_tag == DT_RPATH || entry.d_tag == DT_RUNPATH) folders_.push_back(entry.d_un.d_val);
            has_symbols |= entry.d_tag == DT_SYMTAB;
            if (is_address(entry.d_tag) && !is_loaded(entry.d_un.d_ptr, 1)) return kDamaged;
        }
        return ends && has_names && has_symbols ? "" : kDamaged;
    }

    static bool is_address(std::int64_t tag) {
        static constexpr std::int64_t kAddresses[] = {
            DT_HASH,       DT_STRTAB,     DT_SYMTAB,        DT_RELA,     DT_REL,    DT_JMPREL,  DT_INIT,  DT_FINI,
            DT_INIT_ARRAY, DT_FINI_ARRAY, DT_PREINIT_ARRAY, DT_GNU_HASH, DT_VERSYM, DT_VERNEED, DT_VERDEF};
        return std::find(std::begin(kAddresses), std::end(kAddresses), tag) != std::end(kAddresses);
    }

    const ReadAt& read_;
    const std::uint64_t size_;
    Header header_{};
    std::vector<Segment> loaded_;
    std::optional<Segment> dynamic_;
    std::uint64_t names_ = 0;                      // the address of the table of names
    std::vector<std::uint64_t> needed_, folders_;  // offsets in this table
};

}  // namespace

std::string elf_rejection(const ReadAt& read, std::uint64_t size, ElfNeeds* needs) {
    Library library(read, size);
    std::string rejection = library.rejection();
    if (rejection.empty() && needs != nullptr) *needs = library.needs();
    return rejection;
}

std::string elf_rejection_of_file(int descriptor, ElfNeeds& needs) {
    struct stat status {};
    if (::fstat(descriptor, &status) != 0) return "the file cannot be read";
    const ReadAt read = [descriptor](std::uint64_t offset, std::span<std::byte> to) {
        while (!to.empty()) {
            const ssize_t got = ::pread(descriptor, to.data(), to.size(), static_cast<off_t>(offset));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return false;
            offset += static_cast<std::uint64_t>(got);
            to = to.subspan(static_cast<std::size_t>(got));
        }
        return true;
    };
    return elf_rejection(read, static_cast<std::uint64_t>(status.st_size), &needs);
}

}  // namespace shared_tensor::daemon
