#include "http/response_writer.hpp"

#include <algorithm>
#include <charconv>
#include <exception>
#include <vector>

#include "http/head_parser.hpp"
#include "http/text.hpp"
#include "util/log.hpp"

namespace shared_tensor::http {

namespace {

std::size_t body_size(const Response& response) {
    std::size_t size = response.text.size();
    for (const BodyPart& part : response.parts)
        size += static_cast<std::size_t>(part.size());
    return size;
}

void append_number(std::string& text, std::size_t number) {
    char digits[24];
    const auto end = std::to_chars(digits, digits + sizeof digits, number).ptr;
    text.append(digits, end);
}

void append_field(std::string& head, std::string_view name, std::string_view value) {
    if (!is_token(name) || !is_field_value(value)) return;
    head.append(name).append(": ").append(value).append("\r\n");
}

/// These are the transport's to say.
bool is_framing(std::string_view name) {
    return same_token(name, "Content-Length") || same_token(name, "Transfer-Encoding") ||
           same_token(name, "Connection");
}

bool may_have_body(int status) { return status >= 200 && status != 204 && status != 304; }

}  // namespace

std::string render_response_head(const Response& response, ResponseForm form) {
    std::string head;
    head.reserve(256);
    head.append("HTTP/1.1 ");
    append_number(head, static_cast<std::size_t>(response.status));
    head.append(" ").append(reason_phrase(response.status)).append("\r\n");
    if (!response.content_type.empty()) append_field(head, "Content-Type", response.content_type);
    if (form.body == ResponseForm::Body::chunked) head.append("Transfer-Encoding: chunked\r\n");
    if (may_have_body(response.status) && form.body == ResponseForm::Body::sized) {
        head.append("Content-Length: ");
        append_number(head, body_size(response));
        head.append("\r\n");
    }
    if (form.close) head.append("Connection: close\r\n");
    if (form.keep_http_1_0 && !form.close) head.append("Connection: keep-alive\r\n");
    for (const auto& [name, value] : response.headers) {
        if (!is_framing(name)) append_field(head, name, value);
    }
    head.append("\r\n");
    return head;
}

std::string render_response(const Response& response, ResponseForm form) {
    std::string whole = render_response_head(response, form);
    if (!form.head_only && may_have_body(response.status)) whole += response.text;
    return whole;
}

namespace {

WriteOutcome write_source(Wire& wire, const BodyPart& part, const WriteLimits& limits) {
    const auto reading = part.source->read(part.offset, part.count);
    for (auto piece = reading->next(); !piece.empty(); piece = reading->next()) {
        iovec place{const_cast<std::byte*>(piece.data()), piece.size()};
        const WriteOutcome outcome = write_all(wire, {&place, 1}, limits);
        if (outcome != WriteOutcome::done) return outcome;
    }
    return WriteOutcome::done;
}

/// The head is out already: all that is left for what cannot be read is to cut the answer off.
WriteOutcome try_source(Wire& wire, const BodyPart& part, const WriteLimits& limits) {
    try {
        return write_source(wire, part, limits);
    } catch (const std::exception& error) {
        log::error("an answer is cut off, for its bytes cannot be read: ", error.what());
        return WriteOutcome::broken;
    }
}

}  // namespace

WriteOutcome write_response(Wire& wire, const Response& response, ResponseForm form, const WriteLimits& limits,
                            std::size_t& bytes_out) {
    std::string head = render_response_head(response, form);
    std::vector<iovec> places;
    places.reserve(2 + response.parts.size());
    places.push_back({head.data(), head.size()});
    bytes_out += head.size();
    const bool has_body = !form.head_only && may_have_body(response.status);
    if (!has_body) return write_all(wire, places, limits);
    bytes_out += body_size(response);
    // sendmsg only reads through iov_base
    if (!response.text.empty()) places.push_back({const_cast<char*>(response.text.data()), response.text.size()});
    for (const BodyPart& part : response.parts) {
        if (part.size() == 0) continue;
        if (part.source == nullptr) {
            places.push_back({const_cast<std::byte*>(part.bytes.data()), part.bytes.size()});
            continue;
        }
        WriteOutcome outcome = write_all(wire, places, limits);
        places.clear();
        if (outcome == WriteOutcome::done) outcome = try_source(wire, part, limits);
        if (outcome != WriteOutcome::done) return outcome;
    }
    return places.empty() ? WriteOutcome::done : write_all(wire, places, limits);
}

}  // namespace shared_tensor::http
