#include "tensor/files/tensor_file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/memory.hpp"

namespace shared_tensor::tensor {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kMaxHeaderBytes = 64 << 10;
constexpr std::size_t kAlignment = 64;

/// NumPy's names of the dtypes, without the byte order in front of them.
constexpr std::array<std::pair<std::string_view, DType>, 14> kTypes{{
    {"b1", DType::bool_},
    {"u1", DType::uint8},
    {"u2", DType::uint16},
    {"u4", DType::uint32},
    {"u8", DType::uint64},
    {"i1", DType::int8},
    {"i2", DType::int16},
    {"i4", DType::int32},
    {"i8", DType::int64},
    {"f2", DType::float16},
    {"f4", DType::float32},
    {"f8", DType::float64},
    {"c8", DType::complex64},
    {"c16", DType::complex128},
}};

struct NpyHeader {
    DType dtype = DType::float32;
    bool big_endian = false;
    bool fortran_order = false;
    Shape shape{};
    std::size_t size = 0;  ///< bytes of the header: the offset of the elements
};

/// Reads the header's text: a Python dict literal with three known keys.
class DictReader {
public:
    explicit DictReader(std::string_view text) : text_(text) {}

    NpyHeader read() {
        NpyHeader header;
        expect("{");
        while (!accept("}")) {
            read_member(header);
            if (!accept(",") && !sees("}")) fail("a comma or the end of the dict is missing");
        }
        skip_spaces();
        if (!text_.empty()) fail("something follows the dict");
        if (!std::all_of(seen_.begin(), seen_.end(), [](bool seen) { return seen; }))
            fail("descr, fortran_order or shape is missing");
        return header;
    }

private:
    [[noreturn]] static void fail(const std::string& why) { throw NpyError("bad .npy header: " + why); }

    void read_member(NpyHeader& header) {
        const std::string_view key = read_string();
        expect(":");
        if (key == "descr") {
            read_type(header);
        } else if (key == "fortran_order") {
            header.fortran_order = read_bool();
        } else if (key == "shape") {
            read_shape(header);
        } else {
            fail("the key \"" + std::string(key) + "\" is unknown");
        }
        if (std::exchange(seen_[key == "descr" ? 0 : key == "shape" ? 1 : 2], true)) fail("a key stands twice");
    }

    void read_type(NpyHeader& header) {
        if (sees("[")) throw NpyError("the .npy file holds a structured array: save its fields one by one");
        const std::string_view descr = read_string();
        const auto name = descr.substr(std::min<std::size_t>(1, descr.size()));
        const auto* found =
            std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.first == name; });
        if (descr.empty() || std::string_view("<>=|").find(descr[0]) == std::string_view::npos ||
            found == kTypes.end()) {
            throw NpyError("the .npy file has elements of type \"" + std::string(descr) + "\", which no tensor has");
        }
        header.dtype = found->second;
        header.big_endian = descr[0] == '>';
    }

    bool read_bool() {
        if (accept("True")) return true;
        if (accept("False")) return false;
        fail("True or False is missing");
    }

    void read_shape(NpyHeader& header) {
        expect("(");
        while (!accept(")")) {
            if (header.shape.size() == kMaxRank) fail("more than 64 dimensions");
            header.shape.push_back(read_size());
            if (!accept(",") && !sees(")")) fail("a comma or the end of the shape is missing");
        }
    }

    std::int64_t read_size() {
        skip_spaces();
        std::int64_t size = 0;
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
        if (error != std::errc() || size < 0) fail("a dimension is no integer >= 0");
        text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
        if (text_.starts_with('L')) text_.remove_prefix(1);  // suffix of a long in files from Python 2
        return size;
    }

    std::string_view read_string() {
        skip_spaces();
        const auto end =
            text_.empty() || (text_[0] != '\'' && text_[0] != '"') ? std::string_view::npos : text_.find(text_[0], 1);
        if (end == std::string_view::npos) fail("a quoted word is missing");
        const std::string_view word = text_.substr(1, end - 1);
        text_.remove_prefix(end + 1);
        return word;
    }

    void skip_spaces() { text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size())); }
    bool sees(std::string_view word) {
        skip_spaces();
        return text_.starts_with(word);
    }
    bool accept(std::string_view word) {
        if (!sees(word)) return false;
        text_.remove_prefix(word.size());
        return true;
    }
    void expect(std::string_view word) {
        if (!accept(word)) fail("'" + std::string(word) + "' is missing");
    }

    std::string_view text_;
    std::array<bool, 3> seen_{};
};

std::uint32_t little_endian(std::string_view bytes) {
    std::uint32_t value = 0;
    for (std::size_t i = bytes.size(); i-- > 0;)
        value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
}

/// Returns the strides of Fortran order: the first index changes fastest.
Shape fortran_strides(const Shape& shape) {
    const Shape reversed(shape.rbegin(), shape.rend());
    Shape strides = contiguous_strides(reversed);
    std::reverse(strides.begin(), strides.end());
    return strides;
}

/// Copies the elements in the same order, and converts each number from big to little endian if necessary.
std::shared_ptr<std::vector<std::byte>> copy_elements(std::span<const std::byte> bytes, const NpyHeader& header) {
    auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    const std::size_t number = size_of(header.dtype) / (is_complex(header.dtype) ? 2 : 1);
    if (header.big_endian) {
        for (auto at = copy->begin(); at != copy->end(); at += static_cast<std::ptrdiff_t>(number)) {
            std::reverse(at, at + static_cast<std::ptrdiff_t>(number));
        }
    }
    return copy;
}

std::span<const std::byte> elements_of(std::span<const std::byte> file, const NpyHeader& header) {
    const auto extent = extent_of(header.shape, {}, size_of(header.dtype));
    const std::size_t there = file.size() - header.size;
    if (!extent || extent->bytes > there) {
        throw NpyError("the .npy file ends inside its elements: it holds " + std::to_string(there) + " bytes of them" +
                       (extent ? ", its shape needs " + std::to_string(extent->bytes) : ""));
    }
    return file.subspan(header.size, static_cast<std::size_t>(extent->bytes));
}

NpyHeader parse_header(std::span<const std::byte> file) {
    const std::string_view text(reinterpret_cast<const char*>(file.data()),
                                std::min(file.size(), kMaxHeaderBytes + 12));
    if (!text.starts_with(kMagic)) throw NpyError("not a .npy file: it does not begin with \\x93NUMPY");
    const auto version = text.size() > 6 ? static_cast<unsigned char>(text[6]) : 0;
    if (version < 1 || version > 3)
        throw NpyError(".npy format version " + std::to_string(version) + " is unknown (1 to 3 are)");
    const std::size_t length_bytes = version == 1 ? 2 : 4;
    const std::size_t begin = 8 + length_bytes;
    if (text.size() < begin) throw NpyError("the .npy file ends inside its header");
    const std::size_t length = little_endian(text.substr(8, length_bytes));
    if (length > kMaxHeaderBytes) throw NpyError("the .npy header is longer than 64 KiB");
    if (length > text.size() - begin) throw NpyError("the .npy file ends inside its header");
    NpyHeader header = DictReader(text.substr(begin, length)).read();
    header.size = begin + length;
    return header;
}

}  // namespace

std::string npy_header(DType dtype, ShapeView shape) {
    const auto* found =
        std::find_if(kTypes.begin(), kTypes.end(), [&](const auto& type) { return type.second == dtype; });
    if (found == kTypes.end()) {
        throw NpyError("NumPy has no " + std::string(name_of(dtype)) +
                       ": convert the tensor first, to float32 for example");
    }
    std::string dict = std::string("{'descr': '") + (size_of(dtype) == 1 ? '|' : '<') + std::string(found->first);
    dict += "', 'fortran_order': False, 'shape': (";
    for (const std::int64_t size : shape)
        dict.append(std::to_string(size)).append(shape.size() == 1 ? "," : ", ");
    if (shape.size() > 1) dict.resize(dict.size() - 2);
    dict += "), }";
    const std::size_t begin = kMagic.size() + 4;
    const std::size_t end = (begin + dict.size() + 1 + kAlignment - 1) / kAlignment * kAlignment;
    dict.append(end - begin - dict.size() - 1, ' ').push_back('\n');
    std::string header(kMagic);
    header.append({'\1', '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)});
    return header + dict;
}

TensorRef read_npy(std::span<const std::byte> file, std::shared_ptr<const void> owner, std::uint64_t* used) {
    const NpyHeader header = parse_header(file);
    std::span<const std::byte> elements = elements_of(file, header);
    if (used != nullptr) *used = header.size + elements.size();
    if (elements.empty()) return allocate(header.dtype, header.shape);
    if (has_odd_bools(header.dtype, header.shape, {}, elements.data()))
        throw NpyError("the .npy file has bools that are neither 0 nor 1");
    if (header.big_endian || !is_aligned(elements.data(), header.dtype)) {
        const auto copy = copy_elements(elements, header);
        elements = *copy;
        owner = copy;
    }
    return view_of(elements.data(), std::move(owner), header.dtype, header.shape,
                   header.fortran_order ? fortran_strides(header.shape) : Shape());
}

}  // namespace shared_tensor::tensor
