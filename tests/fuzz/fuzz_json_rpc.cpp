// libFuzzer entry for everything that an untrusted client's text reaches in json_rpc. Beyond not crashing it holds: our
// reader and the library's agree, what was read prints so that it reads back equal, an error's text is printable.

#include <string>
#include <string_view>

#include "protocol/json_rpc/message.hpp"
#include "require.hpp"

namespace {

using namespace shared_tensor::json_rpc;
using shared_tensor::test::require;

constexpr ParseLimits kLimits{.json = {.max_depth = 20, .max_bytes = 1 << 16}, .max_batch_items = 50};

void check_value(std::string_view text) {
    const auto ours = parse_json(text, kLimits.json);
    const auto theirs = Json::parse(text, nullptr, false);
    if (const auto* error = std::get_if<JsonTextError>(&ours)) {
        require(!Json(error->detail).dump().empty(), "an error's text is UTF-8");
        const bool library_stops_early = text.find('\0') != std::string_view::npos;
        require(error->rejection != JsonRejection::syntax || theirs.is_discarded() || library_stops_early,
                "what is no JSON for us is none for the library");
        return;
    }
    const auto& value = std::get<Json>(ours);
    require(value == theirs && value.dump() == theirs.dump(), "both read the same value");
    std::string printed;
    print_json(value, printed);
    require(Json::parse(printed).dump() == value.dump(), "what is printed reads back equal");
}

void check_requests(std::string_view text) {
    const auto parsed = parse(text, kLimits);
    std::string printed;
    if (const auto* rejected = std::get_if<Response>(&parsed)) {
        print(*rejected, printed);
        require(std::holds_alternative<std::vector<Response>>(parse_responses(printed)), "an answer is a response");
        return;
    }
    LongText batch;
    BatchWriter writer(batch, 1000);
    const auto& message = std::get<Message>(parsed);
    for (const auto& item : message.items) {
        if (const auto* response = std::get_if<Response>(&item)) writer.expect(response->id);
    }
    for (const auto& item : message.items) {
        printed.clear();
        if (const auto* response = std::get_if<Response>(&item)) {
            print(*response, printed);
            writer.add(response->id, printed);
        } else {
            print(std::get<Request>(item), printed);
            const auto again = std::get<Message>(parse(printed));
            require(std::holds_alternative<Request>(again.items.at(0)), "a request prints as a request");
        }
    }
    writer.finish();
    const std::string answer = batch.take_whole();
    require(answer.empty() || std::holds_alternative<std::vector<Response>>(parse_responses(answer)),
            "a batch of answers is one for the client");
}

void check_strings(std::string_view bytes) {
    std::string printed;
    print_json_string(bytes, printed);
    require(Json::parse(printed).is_string(), "any bytes print as a JSON string");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(data, data + size);  // a copy of just this size: reading past its end is seen
    check_value(text);
    check_requests(text);
    (void)parse_responses(text, kLimits);
    check_strings(text);
    return 0;
}
