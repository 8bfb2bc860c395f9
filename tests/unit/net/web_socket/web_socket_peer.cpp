#include "web_socket_peer.hpp"

#include <catch2/generators/catch_generators.hpp>
#include <random>
#include <utility>

namespace shared_tensor::test {

namespace {

constexpr std::string_view kClientMask = "\x37\xfa\x21\x3d";

std::string big_endian(std::uint64_t number, int bytes) {
    std::string text;
    for (int i = bytes - 1; i >= 0; --i)
        text += static_cast<char>(number >> (8 * i));
    return text;
}

std::uint64_t number_of(std::string_view bytes) {
    std::uint64_t number = 0;
    for (const char byte : bytes)
        number = number * 256 + static_cast<unsigned char>(byte);
    return number;
}

void unmask(std::string& payload, std::string_view mask) {
    for (std::size_t i = 0; i < payload.size(); ++i)
        payload[i] = static_cast<char>(payload[i] ^ mask[i % 4]);
}

}  // namespace

std::string raw_head(int first_byte, std::uint64_t length, bool masked, std::size_t length_bytes) {
    const int mask_bit = masked ? 0x80 : 0;
    std::string head(1, static_cast<char>(first_byte));
    if (length_bytes == 0) length_bytes = length <= 125 ? 0 : length <= 0xffff ? 2 : 8;
    const int short_length = length_bytes == 0 ? static_cast<int>(length) : length_bytes == 2 ? 126 : 127;
    head += static_cast<char>(mask_bit + short_length) + big_endian(length, static_cast<int>(length_bytes));
    return masked ? head.append(kClientMask) : head;
}

std::string RawFrame::bytes() const {
    std::string body = payload;
    if (masked) unmask(body, kClientMask);
    return raw_head((last ? 0x80 : 0) + reserved * 16 + opcode, payload.size(), masked) + body;
}

int RawFrame::code() const {
    return opcode == kClose && payload.size() >= 2 ? static_cast<int>(number_of(payload.substr(0, 2))) : 0;
}

RawFrame raw_close(int code, std::string_view reason) {
    return {kClose, big_endian(static_cast<std::uint64_t>(code), 2) + std::string(reason)};
}

RawFrame read_raw_frame(RawClient& from) {
    const RawFrame none{-1};
    const std::string head = from.read_bytes(2);
    if (head.size() < 2) return none;
    const int first = static_cast<unsigned char>(head[0]), second = static_cast<unsigned char>(head[1]);
    std::uint64_t length = second & 0x7f;
    if (length >= 126) length = number_of(from.read_bytes(length == 126 ? 2 : 8));
    RawFrame frame{first & 15, "", (first & 0x80) != 0, (second & 0x80) != 0, first >> 4 & 7};
    const std::string mask = from.read_bytes(frame.masked ? 4 : 0);
    frame.payload = from.read_bytes(length);
    if (frame.payload.size() < length) return none;
    if (frame.masked) unmask(frame.payload, mask);
    return frame;
}

std::string web_socket_request(std::string_view path) {
    return get(path,
               "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
}

RawWebSocket::RawWebSocket(int port) : RawClient(port) {
    send(web_socket_request());
    if (read_answer(true).status != 101) throw std::runtime_error("the handshake was rejected");
}

RawFrame read_raw_message(RawClient& from) {
    RawFrame whole{-1};
    while (true) {
        RawFrame frame = read_raw_frame(from);
        if (frame.opcode == -1 || frame.opcode == kClose) return frame;
        if (frame.opcode > kClose) continue;
        if (whole.opcode == -1) whole.opcode = frame.opcode;
        whole.payload += frame.payload;
        if (frame.last) return whole;
    }
}

int read_close_code(RawClient& from) {
    while (true) {
        const RawFrame frame = read_raw_frame(from);
        if (frame.opcode == -1 || frame.opcode == kClose) return frame.code();
    }
}

std::string web_socket_answer(RawClient& connection) {
    const std::string request = connection.read_answer().head;
    const std::size_t at = request.find("Sec-WebSocket-Key: ");
    return net::render_switching(at == std::string::npos ? "" : request.substr(at + 19, 24));
}

net::BodyPart part_of(std::string bytes) {
    const auto kept = std::make_shared<const std::string>(std::move(bytes));
    return {std::as_bytes(std::span(*kept)), kept};
}

std::string random_bytes(std::size_t size) {
    std::mt19937_64 random(size);
    std::string bytes(size, '\0');
    for (char& byte : bytes)
        byte = static_cast<char>(random());
    return bytes;
}

WebSocketRunner::WebSocketRunner(OnMessage act) : on_message(std::move(act)) {
    if (on_message) return;
    on_message = [](net::WebSocket& socket, net::WebSocketMessage message) {
        const auto bytes = message.bytes->bytes();
        socket.send(message.binary, {{bytes, std::move(message.bytes)}});
    };
}

void WebSocketRunner::run(const std::shared_ptr<net::WebSocket>& socket) {
    seen_.with([&](Seen& seen) { seen.sockets.push_back(socket); });
    seen_.notify_all();
    net::WebSocketEnd end = socket->run([&](net::WebSocketMessage message) {
        ++messages_;
        on_message(*socket, std::move(message));
    });
    seen_.with([&](Seen& seen) { seen.ends.push_back(std::move(end)); });
    seen_.notify_all();
}

std::shared_ptr<net::WebSocket> WebSocketRunner::socket() {
    auto seen = seen_.lock();
    const bool came = seen.wait_until(patience(), [](const Seen& now) { return !now.sockets.empty(); });
    if (!came) throw std::runtime_error("no WebSocket was opened");
    return seen->sockets.front();
}

net::WebSocketEnd WebSocketRunner::end() {
    auto seen = seen_.lock();
    const bool came = seen.wait_until(patience(), [](const Seen& now) { return !now.ends.empty(); });
    if (!came) throw std::runtime_error("no WebSocket ended");
    return seen->ends.front();
}

WebSocketServer::WebSocketServer(net::WebSocketLimits limits, net::ServerOptions options, Over over, OnMessage act)
    : WebSocketRunner(std::move(act)), transport_(over, std::move(options)) {
    transport_.handler.on_upgrade = [this, limits](const net::RequestHead&) {
        return net::WebSocketPlan{limits, [this](const auto& socket) { run(socket); }};
    };
}

Ours any_of_ours() { return GENERATE(Ours{true, false}, Ours{false, false}, Ours{true, true}, Ours{false, true}); }

Duo::Duo(Ours ours, net::WebSocketLimits limits, WebSocketRunner::OnMessage act, const std::vector<std::string>& behind)
    : has_tls_(ours.has_tls), client_(ours.is_server ? nullptr : act) {
    std::vector<std::string> first = {""};
    first.insert(first.end(), behind.begin(), behind.end());
    if (ours.is_server) {
        const Over over = ours.has_tls ? Over::tls : Over::tcp;
        server_ = std::make_unique<WebSocketServer>(limits, net::ServerOptions{}, over, std::move(act));
        peer_ = server_->transport().raw_client();
        first.front() = web_socket_request();
        peer_->send_each(first);
        if (peer_->read_answer(true).status != 101) throw std::runtime_error("the handshake was rejected");
        return;
    }
    auto endpoint = net::Endpoint::parse("http://127.0.0.1:" + std::to_string(listener_.port()));
    if (ours.has_tls) endpoint = tls_files().endpoint(listener_.port());
    thread_ = std::jthread([this, endpoint, limits] {
        const auto socket = connect_to(endpoint, buffers_, limits);
        client_.run(socket);
        socket->abort();  // as its owner ends the connection
    });
    RawClient accepted = listener_.accept();
    peer_ = ours.has_tls ? std::make_unique<SafeClient>(RawTls(std::move(accepted), tls_files().server_files()))
                         : std::make_unique<RawClient>(std::move(accepted));
    first.front() = web_socket_answer(*peer_);
    peer_->send_each(first);
}

Duo::~Duo() {
    peer_->close();
    if (thread_.joinable()) client_.socket()->abort();
}

std::string Duo::bytes_of(RawFrame frame) const {
    frame.masked = server_ != nullptr;
    return frame.bytes();
}

OwnClient::OwnClient(const net::Endpoint& endpoint)
    : WebSocketRunner([this](net::WebSocket&, const net::WebSocketMessage& message) {
          received_.with([&](auto& all) {
              all.push_back({message.binary, std::string(message.text()), std::this_thread::get_id()});
          });
          received_.notify_all();
      }) {
    thread_ = std::jthread([this, socket = connect_to(endpoint, buffers_)] { run(socket); });
}

std::vector<Received> OwnClient::receive(std::size_t count) {
    auto all = received_.lock();
    const bool came = all.wait_until(patience(), [&](const auto& now) { return now.size() >= count; });
    return came ? *all : std::vector<Received>();
}

Received OwnClient::receive_one(std::size_t index) {
    auto all = received_.lock();
    const bool came = all.wait_until(patience(), [&](const auto& now) { return now.size() > index; });
    return came ? all->at(index) : Received{false, {}, {}};
}

}  // namespace shared_tensor::test
