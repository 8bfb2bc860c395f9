#include "net/client/client_connection.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "net/message/body.hpp"
#include "net/message/text.hpp"

namespace shared_tensor::net {

namespace {

using Kind = TransportError::Kind;

constexpr std::size_t kResponseBuffer = 16 << 10;
constexpr std::chrono::milliseconds kLinger{20};  // a read waits so long for an answer; then ppoll waits
constexpr int kSwitching = 101;
constexpr int kInterimAnswers = 16;  // "100 Continue" and its like before the real one

[[noreturn]] void fail(Kind kind, std::string_view text) { throw TransportError(kind, true, std::string(text)); }

[[noreturn]] void reject(std::string_view text) { throw TransportError(Kind::protocol, false, std::string(text)); }

[[noreturn]] void fail(BodyRejection rejection) {
    switch (rejection) {
        case BodyRejection::late: fail(Kind::timeout, "the answer did not arrive in time");
        case BodyRejection::too_large: fail(Kind::too_large, "the answer is larger than this client takes");
        case BodyRejection::cut: fail(Kind::broken, "the server closed the connection before its answer was whole");
        default: fail(Kind::protocol, "the chunked answer is malformed");
    }
}

void check_field(std::string_view name, std::string_view value) {
    if (is_token(name) && is_field_value(value)) return;
    reject("the header field " + (is_token(name) ? std::string(name) : "with a malformed name") +
           " of the request holds characters that it must not, such as the end of a line");
}

void check_line(const ClientRequest& request) {
    const auto visible = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
    const bool path_ok =
        request.path.starts_with('/') && std::all_of(request.path.begin(), request.path.end(), visible);
    if (!path_ok || !is_token(request.method))
        reject("the method or path of the request holds characters that it must not");
}

/// Whether the first bytes of an answer may be HTTP.
bool may_be_http(std::string_view answer) {
    constexpr std::string_view kStart = "HTTP/";
    return kStart.starts_with(answer.substr(0, kStart.size()));
}

bool has_body(const ClientRequest& request, int status) {
    return request.method != "HEAD" && status != kSwitching && status != 204 && status != 304;
}

}  // namespace

std::string_view ClientResponse::text() const {
    if (!body) return {};
    return {reinterpret_cast<const char*>(body->data()), body->size()};
}

ClientConnection::ClientConnection(std::unique_ptr<Stream> stream, std::string authority,
                                   std::size_t max_response_bytes)
    : stream_(std::move(stream)),
      authority_(std::move(authority)),
      max_response_bytes_(max_response_bytes),
      input_(kResponseBuffer) {
    stream_->set_linger(kLinger);
}

ClientConnection::Upgraded ClientConnection::take_upgraded() {
    return {std::move(stream_), std::string(input_.view())};
}

/// Reads through TLS, since bytes in the socket may be a TLS message that is no data.
bool ClientConnection::stale() {
    if (!input_.empty()) return true;
    char unasked = 0;
    return stream_->read(&unasked, 1, Stream::Wait::none).status != StreamStatus::again;
}

std::string ClientConnection::render_head(const ClientRequest& request) const {
    check_line(request);
    std::string head;
    head.reserve(512);
    head.append(request.method).append(" ").append(request.path).append(" HTTP/1.1\r\nHost: ").append(authority_);
    head.append("\r\n");
    const auto field = [&](std::string_view name, std::string_view value) {
        check_field(name, value);
        head.append(name).append(": ").append(value).append("\r\n");
    };
    const std::uint64_t size = request.text.size() + size_of(request.parts);
    const bool empty_by_nature =
        size == 0 && (request.method == "GET" || request.method == "HEAD" || request.method == "DELETE");
    if (!empty_by_nature) field("Content-Length", std::to_string(size));
    if (size > 0 && !request.content_type.empty()) field("Content-Type", request.content_type);
    for (const auto& [name, value] : request.headers)
        field(name, value);
    return head.append("\r\n");
}

/// A server that rejects a large body may answer and stop reading before it has all of it, so this looks for an answer.
ClientConnection::Sent ClientConnection::wait_to_send(Deadline deadline) {
    const short ready = wait_ready(stream_->fd(), POLLOUT | POLLIN, deadline);
    if (ready == 0) throw TransportError(Kind::timeout, false, "the server did not take the request in time");
    if ((ready & POLLIN) == 0) return Sent::whole;
    const StreamResult got = input_.read_from(*stream_, Stream::Wait::none);
    return got.status == StreamStatus::again ? Sent::whole : Sent::answered_early;  // or the end of the connection
}

ClientConnection::Sent ClientConnection::send(const ClientRequest& request) {
    const std::string head = render_head(request);
    std::vector<iovec> places;
    places.reserve(2 + request.parts.size());
    places.push_back(place_of(head));
    if (!request.text.empty()) places.push_back(place_of(request.text));
    for (const BodyPart& part : request.parts) {
        if (!part.bytes.empty()) places.push_back(place_of(part.bytes));
    }
    std::span<iovec> left = places;
    while (true) {
        const StreamResult result = stream_->write(left);
        bytes_out_ += result.bytes;
        if (result.status == StreamStatus::broken) return Sent::broken;
        left = skip_written(left, result.bytes);
        if (left.empty()) return Sent::whole;
        if (wait_to_send(request.deadline) == Sent::answered_early) return Sent::answered_early;
    }
}

void ClientConnection::read_more(Deadline deadline) {
    const bool short_of_time = deadline - std::chrono::steady_clock::now() < kLinger;
    const StreamResult got = input_.read_from(*stream_, short_of_time ? Stream::Wait::none : Stream::Wait::linger);
    if (got.status == StreamStatus::ok) return;
    if (got.status != StreamStatus::again) fail(Kind::broken, "the server closed the connection without an answer");
    if (wait_ready(stream_->fd(), POLLIN, deadline) == 0) fail(Kind::timeout, "no answer arrived in time");
}

ResponseFrame ClientConnection::read_head(Deadline deadline) {
    for (int i = 0; i < kInterimAnswers; ++i) {
        HeadScan scan;
        auto scanned = scan.advance(input_.view(), {});
        while (std::holds_alternative<std::monostate>(scanned)) {
            if (!may_be_http(input_.view())) fail(Kind::protocol, "what answers there does not speak HTTP");
            read_more(deadline);
            scanned = scan.advance(input_.view(), {});
        }
        if (const auto* rejection = std::get_if<HeadRejection>(&scanned)) fail(Kind::protocol, rejection->reason);
        const std::size_t size = std::get<std::size_t>(scanned);
        auto parsed = parse_response_head(input_.view().substr(0, size));
        if (const auto* wrong = std::get_if<std::string_view>(&parsed)) fail(Kind::protocol, *wrong);
        input_.consume(size);
        bytes_in_ += size;
        auto& frame = std::get<ResponseFrame>(parsed);
        if (frame.status >= 200 || frame.status == kSwitching) return std::move(frame);
    }
    fail(Kind::protocol, "the server sends interim answers without end");
}

std::shared_ptr<PooledBuffer> ClientConnection::read_body(const ResponseFrame& frame, const ClientRequest& request,
                                                          BufferPool& buffers) {
    const std::size_t max_bytes = request.max_response_bytes.value_or(max_response_bytes_);
    try {
        auto result =
            net::read_body(*stream_, input_, frame.framing, MinimumRate::until(request.deadline), {max_bytes}, buffers);
        if (const auto* rejection = std::get_if<BodyRejection>(&result)) fail(*rejection);
        auto& body = std::get<std::shared_ptr<PooledBuffer>>(result);
        bytes_in_ += body->size();
        return std::move(body);
    } catch (const std::bad_alloc&) {
        fail(Kind::too_large, "there is no memory for the answer");
    }
}

void ClientConnection::read_in_place(const ResponseFrame& frame, BodyPlace& place, Deadline deadline) {
    if (frame.framing.length != place.memory.size())
        fail(Kind::protocol, "the answer does not have the length that was asked for");
    const auto rejection = read_exactly(*stream_, input_, MinimumRate::until(deadline), place.memory, place.filled);
    bytes_in_ += place.filled;
    if (rejection) fail(*rejection);
}

/// A request that broke while it was sent may have an answer ("too large"). If it has none, the function did not run,
/// since the server never had the whole request.
ResponseFrame ClientConnection::read_head_after(Sent sent, Deadline deadline) {
    if (sent != Sent::broken) return read_head(deadline);
    try {
        return read_head(deadline);
    } catch (const TransportError& error) {
        throw TransportError(error.kind, false, "the server closed the connection while the request was sent");
    }
}

ClientResponse ClientConnection::send(const ClientRequest& request, BufferPool& buffers) {
    reusable_ = false;  // until the answer is whole
    const Sent sent = send(request);
    ResponseFrame frame = read_head_after(sent, request.deadline);
    const bool until_the_end = !frame.framing.chunked && !frame.framing.length;
    ClientResponse response;
    response.status = frame.status;
    const bool with_body = has_body(request, frame.status);
    const bool in_place = with_body && request.place != nullptr && frame.status / 100 == 2;
    if (in_place) {
        request.place->status = frame.status;
        request.place->headers = frame.headers;
        read_in_place(frame, *request.place, request.deadline);
    }
    response.body = with_body && !in_place ? read_body(frame, request, buffers) : buffers.take(0);
    reusable_ = sent == Sent::whole && frame.status != kSwitching && frame.keep_alive && input_.empty() &&
                !(with_body && until_the_end);
    response.headers = std::move(frame.headers);
    return response;
}

}  // namespace shared_tensor::net
