#include "net/server/response_writer.hpp"

#include <algorithm>
#include <exception>
#include <vector>

#include "base/log/log.hpp"
#include "net/message/fields.hpp"
#include "net/message/head_parser.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

std::size_t body_size(const Response& response) {
    return response.text.size() + static_cast<std::size_t>(size_of(response.parts));
}

void append_field(std::string& head, std::string_view name, std::string_view value) {
    if (!is_token(name) || !is_field_value(value)) return;
    head.append(name).append(": ").append(value).append("\r\n");
}

/// Fields that only the transport may set.
bool is_framing(std::string_view name) {
    return same_token(name, "Content-Length") || same_token(name, "Transfer-Encoding") ||
           same_token(name, "Connection");
}

bool may_have_body(int status) { return status >= 200 && status != 204 && status != 304; }

/// If a source fails, the head is written already, so the answer is cut off.
WriteOutcome write_source(Stream& stream, const BodyPart& part, const WriteLimits& limits) {
    try {
        const auto reading = part.source->read(part.offset, part.count);
        for (auto piece = reading->next(); !piece.empty(); piece = reading->next()) {
            iovec place = place_of(piece);
            const WriteOutcome outcome = write_all(stream, {&place, 1}, limits);
            if (outcome != WriteOutcome::done) return outcome;
        }
        return WriteOutcome::done;
    } catch (const std::exception& error) {
        log::error("an answer is cut off, for its bytes cannot be read: ", error.what());
        return WriteOutcome::broken;
    }
}

}  // namespace

std::string render_response_head(const Response& response, ResponseForm form) {
    std::string head;
    head.reserve(256);
    head.append("HTTP/1.1 ").append(std::to_string(response.status)).append(" ");
    head.append(reason_phrase(response.status)).append("\r\n");
    if (!response.content_type.empty()) append_field(head, "Content-Type", response.content_type);
    if (form.body == ResponseForm::Body::chunked) head.append("Transfer-Encoding: chunked\r\n");
    if (may_have_body(response.status) && form.body == ResponseForm::Body::sized)
        head.append("Content-Length: ").append(std::to_string(body_size(response))).append("\r\n");
    if (form.close) head.append("Connection: close\r\n");
    if (form.keep_http_1_0 && !form.close) head.append("Connection: keep-alive\r\n");
    for (const Headers* headers : {&response.headers, form.more_headers}) {
        if (headers == nullptr) continue;
        for (const auto& [name, value] : *headers) {
            if (!is_framing(name)) append_field(head, name, value);
        }
    }
    if (!form.request_id.empty()) append_field(head, kRequestId, form.request_id);
    head.append("\r\n");
    return head;
}

std::string render_response(const Response& response, ResponseForm form) {
    std::string whole = render_response_head(response, form);
    if (!form.head_only && may_have_body(response.status)) whole += response.text;
    return whole;
}

WriteOutcome write_response(Stream& stream, const Response& response, ResponseForm form, const WriteLimits& limits,
                            std::size_t& bytes_out) {
    const std::string head = render_response_head(response, form);
    std::vector<iovec> places;
    places.reserve(2 + response.parts.size());
    places.push_back(place_of(head));
    bytes_out += head.size();
    const bool has_body = !form.head_only && may_have_body(response.status);
    if (!has_body) return write_all(stream, places, limits);
    bytes_out += body_size(response);
    if (!response.text.empty()) places.push_back(place_of(response.text));
    for (const BodyPart& part : response.parts) {
        if (part.size() == 0) continue;
        if (part.source == nullptr) {
            places.push_back(place_of(part.bytes));
            continue;
        }
        WriteOutcome outcome = write_all(stream, places, limits);
        places.clear();
        if (outcome == WriteOutcome::done) outcome = write_source(stream, part, limits);
        if (outcome != WriteOutcome::done) return outcome;
    }
    return places.empty() ? WriteOutcome::done : write_all(stream, places, limits);
}

}  // namespace shared_tensor::net
