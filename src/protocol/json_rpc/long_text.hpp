#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shared_tensor::json_rpc {

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
    LongText& append(const char* begin, const char* end) {
        return append(std::string_view(begin, static_cast<std::size_t>(end - begin)));
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

}  // namespace shared_tensor::json_rpc
