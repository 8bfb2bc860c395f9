#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>

#include "protocol/json_rpc/json_text.hpp"

namespace shared_tensor::json_rpc {
namespace {

// Makes values of every kind, favouring the edges. Seeded: a failure names its seed and can be run again.
class RandomJson {
public:
    explicit RandomJson(std::uint32_t seed) : random_(seed) {}

    Json value(int depth) {
        switch (below(depth > 0 ? 9 : 7)) {
            case 0: return nullptr;
            case 1: return below(2) == 1;
            case 2: return static_cast<std::int64_t>(bits());
            case 3: return bits();
            case 4: return static_cast<std::int64_t>(below(5)) - 2;
            case 5: return number();
            case 6: return text();
            case 7: return array(depth);
            default: return object(depth);
        }
    }

private:
    std::uint64_t bits() { return random_() >> below(64); }
    std::uint64_t below(std::uint64_t end) { return random_() % end; }

    double number() {
        const double value = std::bit_cast<double>(random_());  // every double, denormal and huge ones included
        return std::isfinite(value) ? value : static_cast<double>(below(1000)) / 8;
    }

    std::string text() {
        static constexpr const char* kPieces[] = {"a",
                                                  "\"",
                                                  "\\",
                                                  "\n",
                                                  "\x01",
                                                  "/",
                                                  "\x7f",
                                                  "\xC3\xA9",
                                                  "\xE2\x82\xAC",
                                                  "\xF0\x9F\x98\x80",
                                                  "\xEF\xBF\xBF",
                                                  "$tensor",
                                                  " "};
        std::string text;
        for (auto count = below(12); count > 0; --count)
            text += kPieces[below(std::size(kPieces))];
        if (below(8) == 0) text.push_back('\0');
        return text;
    }

    Json array(int depth) {
        Json items = Json::array();
        for (auto count = below(5); count > 0; --count)
            items.push_back(value(depth - 1));
        return items;
    }

    Json object(int depth) {
        Json members = Json::object();
        for (auto count = below(5); count > 0; --count)
            members[text()] = value(depth - 1);
        return members;
    }

    std::mt19937_64 random_;
};

TEST_CASE("json_rpc: what is printed reads back equal, to the last bit and kind of number", "[json_rpc]") {
    for (std::uint32_t seed = 0; seed < 5000; ++seed) {
        const Json value = RandomJson(seed).value(6);
        std::string text;
        print_json(value, text);
        const auto parsed = parse_json(text);
        INFO("seed " << seed << ": " << text);
        REQUIRE(std::holds_alternative<Json>(parsed));
        REQUIRE(std::get<Json>(parsed) == value);
        std::string again;
        print_json(std::get<Json>(parsed), again);
        REQUIRE(again == text);  // equality of values does not tell 2 from 2.0, nor 0.0 from -0.0
    }
}

}  // namespace
}  // namespace shared_tensor::json_rpc
