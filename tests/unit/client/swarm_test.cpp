#include "client/transfers/swarm.hpp"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

using namespace shared_tensor;

namespace {

using ReceiverJson = nlohmann::json;

constexpr std::uint64_t kPiece = std::uint64_t{1} << 20, kPieces = 16;

/// A server of one file and one receiver, which it forgets at one of the questions. Any thread.
class ForgetfulServer {
public:
    explicit ForgetfulServer(int forgets_at) : forgets_at_(forgets_at) {}

    std::string answer(const std::string& text) {
        const std::lock_guard lock(mutex_);
        const ReceiverJson report = ReceiverJson::parse(text);
        if (++questions_ == forgets_at_) name_.clear();
        if (name_.empty()) {
            name_ = "receiver " + std::to_string(questions_);
            has_.clear();
        }
        if (report.value("receiver", "") == name_) {
            for (const auto& piece : report["got"])
                has_.insert(piece.get<std::uint64_t>());
        }
        ReceiverJson answer{
            {"receiver", name_}, {"piece_bytes", kPiece}, {"missing", kPieces - has_.size()}, {"unfinished", 0}};
        for (std::uint64_t piece = 0; piece < kPieces && !answer.contains("piece"); ++piece)
            if (!has_.contains(piece)) answer["piece"] = piece;
        return answer.dump();
    }
    std::size_t known() const { return has_.size(); }

private:
    const int forgets_at_;
    std::mutex mutex_;
    int questions_ = 0;
    std::string name_;
    std::set<std::uint64_t> has_;
};

std::shared_ptr<PooledBuffer> file_in(std::vector<std::byte>& memory) {
    auto file = std::make_shared<PooledBuffer>(std::shared_ptr<const void>(), memory.data(), memory.size());
    file->resize(memory.size());
    return file;
}

}  // namespace

TEST_CASE("a receiver that the server of a swarm has forgotten goes on as a new one", "[client][swarm]") {
    std::vector<std::byte> memory(kPieces * kPiece);
    PullOptions options;
    options.swarm = SwarmOptions{.host = "127.0.0.1"};
    for (const int forgets_at : {2, 3, 12}) {
        ForgetfulServer server(forgets_at);
        std::mutex mutex;
        std::multiset<std::uint64_t> fetched;
        const client::Swarm::Source source{[&](const std::string& report) { return server.answer(report); },
                                           [&](const net::ByteRange& range) { return range.first == 0; },
                                           [&](const net::ByteRange& range) {
                                               const std::lock_guard lock(mutex);
                                               fetched.insert(range.first / kPiece);
                                           },
                                           [](const net::ByteRange&) {}};
        client::Swarm(options, {}, source, file_in(memory)).run();
        CHECK(server.known() == kPieces);
        CHECK(!fetched.contains(0));
        CHECK(std::set<std::uint64_t>(fetched.begin(), fetched.end()).size() == kPieces - 1);
    }
}
