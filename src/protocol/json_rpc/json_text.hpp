#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include <shared_tensor/limits.hpp>

// Converts between JSON text and values. The functions are pure: they do not block, keep no state, and any number of
// threads may call them. They throw only std::bad_alloc, and what appending to a LongText throws.

namespace shared_tensor::json_rpc {

using shared_tensor::JsonLimits;

/// Any JSON value. Write `Json(x)`, not `Json{x}`: braces make an array with one element.
using Json = nlohmann::json;

/// A text would exceed its limit.
class TextTooLong : public std::length_error {
public:
    using std::length_error::length_error;
};

/// A text that grows at its end. This class holds one string; a derived class may keep a long text in pieces, so that
/// it is not moved when it grows, and may limit it. Not thread-safe.
class LongText {
public:
    static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

    /// New text is appended after `start`.
    explicit LongText(std::string start = {}) : tail_(std::move(start)) {}
    LongText(LongText&&) = default;
    LongText& operator=(LongText&&) = default;
    virtual ~LongText() = default;

    // Each throws TextTooLong beyond the limit, and what make_room() throws. A part of the text may be appended by
    // then.
    LongText& append(std::string_view text) {
        if (text.size() > room()) return append_in_pieces(text);
        tail_.append(text);
        return *this;
    }
    LongText& operator+=(std::string_view text) { return append(text); }
    LongText& operator+=(char c) { return append(std::string_view(&c, 1)); }

    /// Throws TextTooLong if `bytes` more bytes would exceed the limit. Call it before these bytes are made.
    void expect(std::size_t bytes) const;
    /// Sets the maximum size of the whole text.
    void set_limit(std::size_t bytes) { limit_ = bytes; }
    std::size_t limit() const { return limit_; }

    std::size_t size() const { return full_bytes_ + tail_.size(); }
    bool is_one_piece() const { return full_.empty(); }
    char back() const { return tail_.empty() ? full_.back().back() : tail_.back(); }
    /// Keeps the first `size` bytes.
    void truncate(std::size_t size);

    /// Returns the text and leaves this object empty.
    std::string take_whole();
    /// Returns the text as its non-empty pieces, and leaves this object empty. An empty text has no piece.
    std::vector<std::string> take_pieces();

protected:
    /// Sizes in bytes of the first piece and of each further piece. A text in pieces starts empty.
    LongText(std::size_t first_piece, std::size_t piece)
        : piece_(piece), first_piece_(first_piece), tail_limit_(first_piece) {}
    /// Called before memory for a further piece is allocated. Its exceptions leave append().
    virtual void make_room(std::size_t bytes) { static_cast<void>(bytes); }
    /// Called each time truncate() drops the last piece: undoes the latest make_room().
    virtual void give_back_room() {}

private:
    /// Bytes that fit into both the last piece and the limit.
    std::size_t room() const {
        const std::size_t in_piece = tail_limit_ - tail_.size();
        const std::size_t in_text = limit_ < size() ? 0 : limit_ - size();
        return in_piece < in_text ? in_piece : in_text;
    }
    LongText& append_in_pieces(std::string_view text);

    std::vector<std::string> full_;
    std::string tail_;
    std::size_t full_bytes_ = 0, limit_ = kNoLimit;
    std::size_t piece_ = kNoLimit, first_piece_ = kNoLimit, tail_limit_ = kNoLimit;
};

/// Why a text was rejected.
enum class JsonRejection {
    syntax,         ///< not JSON by RFC 8259; also NUL bytes, invalid UTF-8, lone surrogates, text after the value
    too_large,      ///< more bytes than the limit
    too_deep,       ///< more levels of arrays and objects than the limit
    number_range,   ///< an integer beyond 64 bits, or a number that a double turns into infinity or zero
    duplicate_key,  ///< an object with two equal keys, at any depth
};

struct JsonTextError {
    JsonRejection rejection = JsonRejection::syntax;
    /// Describes the error in printable UTF-8 of limited length. Quotes no bytes of the text, except a short duplicate
    /// key.
    std::string detail;
};

/// Parses one JSON text by RFC 8259 and rejects the cases of JsonRejection. Ignores a leading byte order mark. Takes
/// time proportional to the bytes, for rejected texts too. Checks limits before it builds the value that would exceed
/// them. A value uses at most about 30 bytes of memory per byte of text.
std::variant<Json, JsonTextError> parse_json(std::string_view text, const JsonLimits& limits = {});

/// Takes the members of an object, without making an object of them.
class JsonMembers {
public:
    virtual ~JsonMembers() = default;
    /// Returns the place of the member's value, which is null; a null pointer if there was such a member before.
    virtual Json* add(std::string_view key) = 0;
};
/// Like parse_json() for a text that is an object: false, and nothing is read, if it begins otherwise.
std::variant<bool, JsonTextError> parse_json_object(std::string_view text, const JsonLimits& limits,
                                                    JsonMembers& members);

/// Prints some objects in a special form.
class SpecialPrinter {
public:
    enum class Did {
        nothing,  ///< the object is printed in the normal form
        all,      ///< the object was appended
        wrapper,  ///< like `nothing`, but print() is not called for the value of the object's member
    };
    virtual ~SpecialPrinter() = default;
    /// Called for each object with one member, outer objects first. If it throws, `out` holds an incomplete text.
    virtual Did print(const Json& object, LongText& out) = 0;
};

/// Appends the value to `out` as compact JSON. The same value gives the same text on every machine and in every locale.
/// The text is always valid JSON: NaN, infinities and binary values print as null, invalid UTF-8 as U+FFFD. Does not
/// recurse. A number that parse_json read is printed so that parse_json reads an equal number of the same type.
/// `special`, if given, prints some of the objects.
void print_json(const Json& value, LongText& out, SpecialPrinter* special = nullptr);
void print_json(const Json& value, std::string& out);

/// Appends a JSON string with its quotes; invalid UTF-8 becomes U+FFFD.
void print_json_string(std::string_view text, LongText& out);
void print_json_string(std::string_view text, std::string& out);

/// Appends by means of a LongText to a string, which holds its text also if `print(LongText&)` throws.
template <class Print>
void append_to(std::string& out, Print print) {
    LongText text(std::move(out));
    try {
        print(text);
    } catch (...) {
        out = text.take_whole();
        throw;
    }
    out = text.take_whole();
}

/// Returns the text of a member; "" if `value` is no object or has no string of this name.
inline std::string text_member(const Json& value, std::string_view name) {
    const auto found = value.find(name);  // the end if `value` is no object
    return found != value.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace shared_tensor::json_rpc
