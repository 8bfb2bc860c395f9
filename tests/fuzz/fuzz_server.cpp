// libFuzzer entry for what a process of this host sends over the local channel, to a server that listens on a real one:
// packets, descriptors beside them, and tensors in memory that they named (tests/support/local_channel_examples.hpp has
// the form). Beyond not crashing it holds: every request has one answer, whatever is no request ends the channel, what
// was taken as a tensor can be read to its last byte, and when nothing reads a segment any more its owner is told so.

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include <shared_tensor/server.hpp>
#include <shared_tensor/value.hpp>

#include "base/log/log.hpp"
#include "base/system/unix_listener.hpp"
#include "local/channel/packet.hpp"
#include "local/segments/segment.hpp"
#include "protocol/json_rpc/message.hpp"
#include "require.hpp"
#include "server/services.hpp"
#include "tensor/handle.hpp"
#include "tensor/memory.hpp"
#include "tensor/transports/tensor_transfer.hpp"

namespace {

using namespace shared_tensor;
using json_rpc::Json;
using test::require;
using Descriptor = std::shared_ptr<const UniqueFd>;

constexpr std::chrono::seconds kPatience{20};
constexpr std::size_t kMaxLines = 40;

/// A server's part that listens, in a folder of its own.
class Listening {
public:
    Listening() {
        log::set_level(log::Level::off);
        all_.local.start(0);
    }
    ~Listening() {
        all_.local.stop();
        ::rmdir(folder_.c_str());
    }
    UniqueFd connect() const {
        UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        const sockaddr_un address = unix_address(all_.local.path());
        require(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0,
                "the server goes on to listen");
        return socket;
    }
    /// Of a session's token.
    std::shared_ptr<server::LocalClient> client(const std::string& session) {
        const auto who = all_.access.check_local(::getuid(), "");
        const auto kind = all_.sessions.touch(session, std::get<server::Principal>(who).name);
        return kind ? all_.local.find(kind->channel) : nullptr;
    }

private:
    static std::string make_folder() {
        std::string folder = "/tmp/shared_tensor_fuzz_XXXXXX";
        if (::mkdtemp(folder.data()) == nullptr) std::abort();
        return folder;
    }
    ServerOptions options() const {
        ServerOptions options;
        options.local_socket = folder_ + "/s";
        options.shared_memory.max_segments = 2'000;
        options.shared_memory.max_channels = 64;
        return options;
    }

    const std::string folder_ = make_folder();
    server::Services all_{Registry(), options()};
};

/// A memfd that no peer may map: unsealed, with a hole, or of huge pages (unsealed where the kernel has none).
Descriptor bad_memory(char kind) {
    const auto page = static_cast<off_t>(local::page_size());
    UniqueFd fd(::memfd_create("bad", MFD_CLOEXEC | MFD_ALLOW_SEALING | (kind == '%' ? MFD_HUGETLB : 0)));
    if (!fd) return bad_memory('-');
    bool made = ::ftruncate(fd.get(), kind == '%' ? off_t{2} << 20 : page) == 0;
    // The first page is missing, and one beyond the end makes up for it.
    if (kind == '*') made = made && ::fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, page, page) == 0;
    if (kind != '-') made = made && ::fcntl(fd.get(), F_ADD_SEALS, local::kSeals) == 0;
    if (!made) std::abort();
    return std::make_shared<const UniqueFd>(std::move(fd));
}

/// One client with what it has sent so far.
class Peer {
public:
    explicit Peer(Listening& server) : server_(&server), socket_(server.connect()) {}

    /// False when the channel is over.
    bool send(std::string_view text, const std::vector<Descriptor>& beside) {
        if (text.empty() || text.size() > local::kMaxPacketBytes) return true;
        if (local::send_packet(socket_.get(), {std::string(text), beside}) != local::Sent::yes) return false;
        const auto parsed = json_rpc::parse(text, {{20, local::kMaxPacketBytes}, 1});
        const auto* message = std::get_if<json_rpc::Message>(&parsed);
        const auto* request = message != nullptr && !message->is_batch
                                  ? std::get_if<json_rpc::Request>(&message->items.front())
                                  : nullptr;
        if (request == nullptr) {
            while (receive()) {
            }
            return false;
        }
        note_offer(*request);
        return request->is_notification() || take_answer(*request);
    }

    /// As an argument of a call of this client's; kept until the end.
    void take_tensor(std::string_view text) {
        const auto client = server_->client(session_);
        const Json json = Json::parse(text, nullptr, false);
        if (client == nullptr || json.is_discarded()) return;
        try {
            tensor::TensorTransfer transfer({}, {}, {.max_expanded_bytes = 1 << 16}, client->transports());
            tensors_.push_back(transfer.import(json));
        } catch (const InvalidValue& error) {
            require(!error.expected.empty() && !error.got.empty(), "a rejection says what was expected and what came");
        }
    }

    /// Everything that was taken is read and let go: then nothing is in use.
    void finish() {
        for (const auto& one : tensors_) {
            const tensor::Dense values = tensor::dense(one->tensor());
            volatile unsigned char seen = 0;
            for (const std::byte byte : values.bytes)
                seen = static_cast<unsigned char>(seen ^ std::to_integer<unsigned char>(byte));
        }
        tensors_.clear();
        const auto client = server_->client(session_);
        if (client == nullptr) return;
        const auto deadline = std::chrono::steady_clock::now() + kPatience;
        for (const std::string& segment : offered_) {
            while (!client->recycle(segment)) {  // mappings are taken back in the background
                require(std::chrono::steady_clock::now() < deadline, "what nothing reads is free");
                std::this_thread::yield();
            }
        }
    }

private:
    std::optional<local::Packet> receive() const {
        pollfd readable{socket_.get(), POLLIN, 0};
        int waited = 0;
        do {  // libFuzzer's timer interrupts it
            waited = ::poll(&readable, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count()));
        } while (waited < 0 && errno == EINTR);
        require(waited > 0, "a request is answered, and what is none ends the channel");
        local::Packet packet;
        if (local::receive_packet(socket_.get(), packet) != local::Got::packet) return std::nullopt;
        return packet;
    }

    /// What comes before it are notifications.
    bool take_answer(const json_rpc::Request& request) {
        while (const auto packet = receive()) {
            const auto parsed = json_rpc::parse_responses(packet->text);
            const auto* responses = std::get_if<std::vector<json_rpc::Response>>(&parsed);
            if (responses == nullptr) continue;
            require(responses->size() == 1 && responses->front().id == *request.id, "an answer has its request's id");
            const Json* result = responses->front().result();
            if (request.method == "session.open" && result != nullptr) session_ = (*result)["session"];
            return true;
        }
        return false;
    }

    void note_offer(const json_rpc::Request& request) {
        if (request.method != "segment.offer" || request.params.empty()) return;
        const Json& name = request.params.is_object() ? request.params.value("segment", Json()) : request.params[0];
        if (name.is_string()) offered_.insert(name.get<std::string>());
    }

    Listening* const server_;
    const UniqueFd socket_;
    std::string session_;
    std::set<std::string> offered_;
    std::vector<codec::TensorPointer> tensors_;
};

/// Each line is a packet or, behind "=", a tensor. The first byte of a packet may name memory that goes beside it.
void play(Peer& peer, std::string_view script) {
    static const local::Segment kSealed(local::page_size());
    static const std::map<char, Descriptor> kBeside{
        {'+', kSealed.descriptor()}, {'-', bad_memory('-')}, {'*', bad_memory('*')}, {'%', bad_memory('%')}};
    for (std::size_t lines = 0; !script.empty() && lines < kMaxLines; ++lines) {
        const std::string_view line = script.substr(0, script.find('\n'));
        script.remove_prefix(std::min(line.size() + 1, script.size()));
        if (line.empty()) continue;
        const auto beside = kBeside.find(line.front());
        if (line.front() == '=') {
            peer.take_tensor(line.substr(1));
        } else if (beside != kBeside.end()) {
            if (!peer.send(line.substr(1), {beside->second})) break;
        } else if (!peer.send(line, {})) {
            break;
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static Listening server;
    Peer peer(server);
    play(peer, {reinterpret_cast<const char*>(data), size});
    peer.finish();
    return 0;
}
