#include <utility>
#include <vector>

#include "protocol/json_rpc/json_lexer.hpp"
#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {
namespace {

constexpr std::size_t kLongestQuotedKey = 64;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Builds each value in its final place. Uses its own stack, not recursion: the caller chooses the depth limit.
class JsonReader {
public:
    JsonReader(std::string_view text, std::size_t max_depth) : lexer_(text), max_depth_(max_depth) { open_.reserve(8); }

    std::variant<Json, JsonTextError> read() {
        Json root;
        bool good = value(root);
        while (good && !open_.empty())
            good = step();
        if (good && !lexer_.at_end()) good = reject("something follows the value");
        if (!good) return *lexer_.error();
        return root;
    }

private:
    // An array or object that is not complete yet. The pointers stay valid when the owning Json moves, since both
    // containers are on the heap.
    struct Container {
        Json::array_t* items;
        Json::object_t* members;
        bool is_empty;
    };

    bool value(Json& out) {
        switch (lexer_.peek()) {
            case '[': return open(Json::value_t::array, out);
            case '{': return open(Json::value_t::object, out);
            case '"': out = Json::value_t::string; return lexer_.string(out.get_ref<std::string&>());
            case 't': out = true; return lexer_.word("true");
            case 'f': out = false; return lexer_.word("false");
            case 'n': return lexer_.word("null");
            default: return lexer_.number(out);
        }
    }

    bool open(Json::value_t type, Json& out) {
        if (open_.size() == max_depth_) {
            const auto reason = "nested deeper than " + std::to_string(max_depth_) + " levels";
            return lexer_.reject(JsonRejection::too_deep, reason);
        }
        out = type;
        lexer_.take(lexer_.peek());  // the bracket
        open_.push_back({out.get_ptr<Json::array_t*>(), out.get_ptr<Json::object_t*>(), true});
        return true;
    }

    // Reads the next element of the innermost container, or its end.
    bool step() {
        Container& inner = open_.back();
        if (lexer_.take(inner.items ? ']' : '}')) {
            open_.pop_back();
            return true;
        }
        if (!inner.is_empty && !lexer_.take(','))
            return reject(inner.items ? "expected ',' or ']'" : "expected ',' or '}'");
        inner.is_empty = false;
        return inner.items ? value(inner.items->emplace_back()) : member(*inner.members);
    }

    bool member(Json::object_t& members) {
        if (lexer_.peek() != '"') return reject("expected a key in quotes");
        std::string key;
        if (!lexer_.string(key)) return false;
        if (!lexer_.take(':')) return reject("expected ':' after a key");
        const auto [place, added] = members.try_emplace(std::move(key));  // does not replace an existing key
        if (added) return value(place->second);
        const auto quoted = key.size() <= kLongestQuotedKey ? " \"" + key + '"' : "";
        return lexer_.reject(JsonRejection::duplicate_key, "an object has the key" + quoted + " twice");
    }

    bool reject(std::string_view reason) { return lexer_.reject(JsonRejection::syntax, reason); }

    JsonLexer lexer_;
    std::size_t max_depth_;
    std::vector<Container> open_;  // outermost first
};

}  // namespace

std::variant<Json, JsonTextError> parse_json(std::string_view text, const JsonLimits& limits) {
    if (text.size() > limits.max_bytes) {
        return JsonTextError{JsonRejection::too_large, "longer than " + std::to_string(limits.max_bytes) + " bytes"};
    }
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    return JsonReader(text, limits.max_depth).read();
}

}  // namespace shared_tensor::json_rpc
