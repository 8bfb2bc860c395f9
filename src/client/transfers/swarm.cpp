#include "client/transfers/swarm.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/bytes/digest.hpp"
#include "base/bytes/ids.hpp"
#include "base/concurrency/at_end.hpp"
#include "base/concurrency/in_parallel.hpp"
#include "base/log/log.hpp"

namespace shared_tensor::client {

namespace {

using SwarmJson = nlohmann::json;

constexpr std::chrono::milliseconds kPause{50};       // while all missing pieces are on their way to others
constexpr std::chrono::milliseconds kLongPause{200};  // while others fetch their last pieces
constexpr std::chrono::seconds kToLeave{5};           // for the word that this receiver leaves
constexpr std::chrono::seconds kPieceTime{10};        // a relay that takes longer is left out

}  // namespace

Swarm::Swarm(const PullOptions& options, const TlsOptions& tls, const Source& source,
             std::shared_ptr<PooledBuffer> file)
    : options_(options),
      tls_client_(tls.certificate.empty() ? nullptr : net::TlsClient::load(tls)),
      source_(source),
      file_(std::move(file)),
      relay_(*options.swarm, tls, file_),
      ends_(failed_.get_token(), source.stop) {}

/// After a failure the server notices by itself that this receiver is gone.
Swarm::~Swarm() {
    const std::string mine = receiver_.with([](const std::string& id) { return id; });
    if (mine.empty() || has_failed()) return;
    try {
        source_.ask(report(mine, {}, {}, true), later(real_clock().now(), kToLeave));
    } catch (...) {  // the file may have changed meanwhile, which is thrown as well
        log::debug("the server was not told that a receiver has left its swarm");
    }
}

std::string Swarm::report(const std::string& receiver, const Pieces& got, const Pieces& lost, bool leaves) const {
    SwarmJson told{{"port", relay_.port()}, {"key", relay_.key()}, {"got", got}, {"lost", lost}};
    if (!receiver.empty()) told["receiver"] = receiver;
    if (tls_client_ != nullptr) told["tls"] = true;
    if (options_.swarm->trusted) told["digest"] = "xxh3-128";
    if (leaves) told["leaves"] = true;
    return told.dump();
}

/// A server that has heard nothing of this receiver for a minute takes it as a new one. It then asks this one to fetch
/// pieces that are there, and is told so: see work().
Swarm::Step Swarm::ask(const Pieces& got, const Pieces& lost, std::optional<SteadyTime> once_until) {
    const std::string mine = receiver_.with([](const std::string& id) { return id; });
    Step step = parse(source_.ask(report(mine, got, lost, false), once_until));
    if (step.receiver != mine) receiver_.with([&](std::string& id) { id = step.receiver; });
    return step;
}

Swarm::Step Swarm::parse(const std::string& text) const {
    const SwarmJson answer = SwarmJson::parse(text, nullptr, false);
    Step step;
    try {
        step.receiver = answer.at("receiver").get<std::string>();
        step.piece_bytes = answer.at("piece_bytes").get<std::uint64_t>();
        step.missing = answer.at("missing").get<std::size_t>();
        step.unfinished = answer.at("unfinished").get<std::size_t>();
        if (const auto piece = answer.find("piece"); piece != answer.end()) step.piece = piece->get<std::uint64_t>();
        step.from = answer.value("from", "");
        step.digest = answer.value("digest", "");
    } catch (const SwarmJson::exception& error) {
        throw ProtocolFailure(std::string("the server's answer about a swarm: ") + error.what(), true);
    }
    const bool same = piece_bytes_ == 0 || step.piece_bytes == piece_bytes_;
    if (!same || step.piece_bytes < Relay::kSmallestPiece || (step.piece && *step.piece >= pieces_of(step.piece_bytes)))
        throw ProtocolFailure("the server's answer about a swarm names a piece that the file does not have", true);
    return step;
}

std::uint64_t Swarm::pieces_of(std::uint64_t piece_bytes) const {
    return file_->size() / piece_bytes + (file_->size() % piece_bytes > 0 ? 1 : 0);
}

net::ByteRange Swarm::range_of(std::uint64_t piece) const {
    const std::uint64_t first = piece * piece_bytes_;
    return {first, std::min<std::uint64_t>(piece_bytes_, file_->size() - first)};
}

/// False if the relay is not reached, has not the piece or sends other bytes.
bool Swarm::fetch_from_relay(const Step& step) {
    const std::size_t path = step.from.find('/', step.from.find("//") + 2);
    std::optional<net::Endpoint> endpoint;
    try {
        if (path != std::string::npos) endpoint = net::Endpoint::parse(step.from.substr(0, path));
    } catch (const std::exception& error) {
        log::debug(step.from, ": ", error.what());
    }
    if (!endpoint) return false;
    const auto peer = peers_.with([&](auto& peers) {
        auto& one = peers[step.from];
        if (one == nullptr) {
            net::ClientOptions options{.endpoint = *endpoint};
            options.endpoint.tls_client = tls_client_;
            options.connect_timeout = std::chrono::seconds(3);
            one = std::make_shared<net::Client>(std::move(options));
        }
        return one;
    });
    const net::ByteRange range = range_of(*step.piece);
    net::BodyPlace place{{file_->data() + range.first, static_cast<std::size_t>(range.count)}};
    net::ClientRequest request;
    request.method = "GET";
    request.path = step.from.substr(path) + '/' + std::to_string(*step.piece);
    request.place = &place;
    request.deadline = std::min(source_.deadline, real_clock().now() + kPieceTime);
    request.stop = ends_.token();
    from_relays_.with([&](auto& pieces) { pieces.insert(*step.piece); });
    try {
        const net::ClientResponse response = peer->send(request);
        if (response.status != 200 || place.filled != place.memory.size()) return false;
    } catch (const net::TransportError& error) {
        log::debug(step.from, ": ", error.what());
        return false;
    }
    // A server that knows nothing of trust sends SHA-256.
    const bool by_xxh3 = options_.swarm->trusted && step.digest.size() == 2 * sizeof(Digest::Value);
    if ((by_xxh3 ? hex(Digest::of(place.memory)) : hex(Sha256::of(place.memory))) == step.digest) return true;
    log::warn(step.from, " passed on other bytes than the server has: it is left out");
    return false;
}

void Swarm::add(std::uint64_t piece) {
    if (relay_.add(piece, piece_bytes_)) --left_;
}

/// Fetches pieces until none is missing. `step` is the first.
void Swarm::work(Step step) {
    Pieces got, lost;
    for (; step.missing > 0 && !has_failed(); step = ask(std::exchange(got, {}), std::exchange(lost, {}))) {
        if (!step.piece) {
            std::this_thread::sleep_for(kPause);
            continue;
        }
        // The server may name a piece again, such as after a time in which it heard nothing. A second fetch into the
        // same memory could replace bytes that were checked.
        if (!under_way_.with([&](auto& pieces) { return pieces.insert(*step.piece).second; })) {
            std::this_thread::sleep_for(kPause);
            continue;
        }
        const AtEnd is_over([&, piece = *step.piece] { under_way_.with([&](auto& pieces) { pieces.erase(piece); }); });
        const net::ByteRange range = range_of(*step.piece);
        const bool was_there = relay_.has(*step.piece), from_relay = !was_there && !step.from.empty();
        if (!was_there && !from_relay) source_.fetch(range);
        const bool is_there = !from_relay || fetch_from_relay(step);
        if (is_there) add(*step.piece);
        if (is_there && from_relay) source_.arrived(range);
        if (has_failed()) return;  // a relay whose request was stopped is not reported
        (is_there ? got : lost).push_back(*step.piece);
    }
}

/// Adds the pieces that this process has, or lacks little of, and returns their numbers.
Swarm::Pieces Swarm::complete_pieces() {
    const std::uint64_t pieces = left_;
    in_parallel(options_.connections, pieces, [&](std::uint64_t piece) {
        if (source_.complete(range_of(piece))) add(piece);
    });
    Pieces all;
    for (std::uint64_t piece = 0; piece < pieces; ++piece) {
        if (relay_.has(piece)) all.push_back(piece);
    }
    return all;
}

Swarm::Ranges Swarm::missing(const std::function<Ranges(const net::ByteRange& range)>& missing_before) const {
    if (piece_bytes_ == 0) return missing_before({0, file_->size()});
    Ranges all;
    const auto add_range = [&](const net::ByteRange& range) {
        if (!all.empty() && all.back().first + all.back().count == range.first) {
            all.back().count += range.count;
        } else {
            all.push_back(range);
        }
    };
    for (std::uint64_t piece = 0; piece < pieces_of(piece_bytes_); ++piece) {
        if (relay_.has(piece)) continue;
        const bool is_overwritten = from_relays_.with([&](const auto& pieces) { return pieces.contains(piece); });
        const net::ByteRange whole = range_of(piece);
        for (const net::ByteRange& range : is_overwritten ? Ranges{whole} : missing_before(whole))
            add_range(range);
    }
    return all;
}

void Swarm::run() {
    try {
        fetch_all();
    } catch (...) {
        failed_.request_stop();
        throw;
    }
    linger();
}

void Swarm::fetch_all() {
    const Step first = ask({}, {});
    piece_bytes_ = first.piece_bytes;
    left_ = pieces_of(piece_bytes_);
    std::vector<Step> begun{first};
    if (const Pieces had = complete_pieces(); !had.empty()) begun.push_back(ask(had, {}));
    const std::size_t threads = std::max<std::size_t>(options_.connections, 8);
    try {
        in_parallel(threads, threads, [&](std::uint64_t number) {
            try {
                work(number < begun.size() ? begun[number] : ask({}, {}));
            } catch (...) {
                failed_.request_stop();  // the others end with the pieces that they fetch from the server
                throw;
            }
        });
    } catch (...) {
        if (left_ > 0) throw;  // else only a report failed
    }
    if (left_ > 0)
        throw ProtocolFailure("the server says that all pieces of the file are there, and some are not", true);
}

void Swarm::linger() {
    const SteadyTime end = later(real_clock().now(), options_.swarm->linger);
    const auto others_lack_pieces = [&] {
        try {
            return ask({}, {}, end).unfinished > 0;
        } catch (const NoSwarm&) {  // the server is busy
            return true;
        }
    };
    try {
        while (real_clock().now() < end && others_lack_pieces())
            std::this_thread::sleep_for(kLongPause);
    } catch (...) {  // the file is complete, whatever has become of the server or of its version
        log::debug("a receiver that is complete no longer waits for others");
    }
}

}  // namespace shared_tensor::client
