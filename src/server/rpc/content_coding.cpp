#include "server/rpc/content_coding.hpp"

#include <algorithm>
#include <cstring>
#include <memory>

#include "net/message/text.hpp"
#include "protocol/json_rpc/error.hpp"
#include "server/rpc/reply.hpp"

namespace shared_tensor::server {

namespace {

constexpr std::size_t kProbe = 64 << 10;
constexpr std::size_t kTextAtOnce = std::size_t{8} << 20;

Compression choice_for(const net::RequestHead& head, const CodingOffer& offer) {
    const auto accepted = head.headers.find("Accept-Encoding");
    return accepted ? offer.choose(*accepted) : Compression();
}

/// Adds Content-Encoding. The compressed bytes differ from the bytes that the ETag names, so the tag becomes weak (RFC
/// 9110, section 8.8.1), and byte ranges are not offered.
void mark_coded(net::Headers& headers, Coding coding) {
    net::Headers marked;
    for (const auto& [name, value] : headers) {
        const bool is_tag = net::same_token(name, "ETag");
        if (!net::same_token(name, "Accept-Ranges"))
            marked.add(name, is_tag && !value.starts_with("W/") ? "W/" + value : value);
    }
    marked.add("Content-Encoding", std::string(name_of(coding)));
    headers = std::move(marked);
}

/// A copy of the first `most` bytes of the body, or of all bytes if there are fewer.
std::vector<std::byte> first_of(const std::vector<net::BodyPart>& parts, std::size_t most) {
    std::vector<std::byte> first;
    net::for_each_piece(parts, [&](std::span<const std::byte> piece) {
        const auto some = piece.first(std::min(piece.size(), most - first.size()));
        first.insert(first.end(), some.begin(), some.end());
        return first.size() < most;
    });
    return first;
}

/// Compresses the body in memory, if it becomes smaller.
void compress(Compression how, CompressionTotals& totals, net::Response& response) {
    const std::uint64_t size = response.text.size() + net::size_of(response.parts);
    std::vector<std::byte> gathered;
    std::span<const std::byte> bytes = std::as_bytes(std::span(response.text));
    if (response.parts.size() == 1 && response.parts.front().source == nullptr) {
        bytes = response.parts.front().bytes;
    } else if (!response.parts.empty()) {
        gathered = first_of(response.parts, static_cast<std::size_t>(size));
        bytes = gathered;
    }
    auto smaller = compress_if_smaller(bytes, how);
    if (!smaller) return;
    totals.add({0, 0, smaller->size, size});
    response.parts = {{smaller->bytes(), smaller->owner}};
    response.text.clear();
    mark_coded(response.headers, how.coding);
}

}  // namespace

Coding known_coding(const net::Headers& headers) {
    const auto field = headers.find("Content-Encoding");
    if (!field) return Coding::none;
    const auto coding = headers.count("Content-Encoding") == 1 ? parse_coding(net::trim(*field)) : std::nullopt;
    if (coding) return *coding;
    throw Rejected(json_rpc::invalid_params("Content-Encoding", "zstd, gzip or none", *field), 415);
}

Decoded decoded(const net::Request& request, Coding coding, std::size_t most, CompressionTotals& totals,
                const std::function<std::shared_ptr<const void>(std::size_t bytes)>& hold) {
    const auto bytes = request.body != nullptr ? request.body->bytes() : std::span<const std::byte>();
    try {
        Decoded whole;
        const auto shares = std::make_shared<std::vector<std::shared_ptr<const void>>>();
        std::size_t held = 0;
        whole.share = shares;
        whole.bytes = decompress(coding, bytes, most, [&](std::size_t size) {
            auto share = hold(size - held);
            if (share == nullptr) throw Rejected(json_rpc::busy(std::chrono::seconds(1)), 503);
            shares->push_back(std::move(share));
            held = size;
        });
        totals.add({bytes.size(), whole.bytes.size(), 0, 0});
        return whole;
    } catch (const TooLong&) {
        throw Rejected(json_rpc::invalid_params("Content-Encoding",
                                                "at most " + std::to_string(most) + " bytes, uncompressed", "more"),
                       413);
    } catch (const BadCompression& error) {
        reject("Content-Encoding", "a body in this coding", error.what());
    }
}

void compress_text(const net::RequestHead& head, const CodingOffer& offer, CompressionTotals& totals,
                   net::Response& response, net::ResponseStream& response_stream) {
    if (response.text.size() + net::size_of(response.parts) <= kTextAtOnce) {
        compress(choice_for(head, offer), totals, response);
    } else {
        send_compressed(head, offer, totals, response, response_stream);
    }
}

bool send_compressed(const net::RequestHead& head, const CodingOffer& offer, CompressionTotals& totals,
                     net::Response& response, net::ResponseStream& response_stream) {
    const Compression how = choice_for(head, offer);
    if (!how || response.status != 200 || head.method == "HEAD") return false;
    if (!is_worth_compressing(first_of(response.parts, kProbe), how)) return false;
    net::Response start = response;
    start.parts.clear();
    mark_coded(start.headers, how.coding);
    const std::vector<net::BodyPart> parts = std::exchange(response.parts, {});
    std::uint64_t sent = 0, left = net::size_of(parts);
    const std::uint64_t size = left;
    const auto send = [&](std::span<const std::byte> piece) {
        sent += piece.size();
        const net::BodyPart part{piece, nullptr};
        return response_stream.write({&part, 1});
    };
    bool is_whole = response_stream.begin(start);
    if (is_whole) {
        Compressor compressor(how, size);
        is_whole = net::for_each_piece(parts, [&](std::span<const std::byte> piece) {
            left -= piece.size();
            return compressor.add(piece, left == 0, send);
        });
    }
    totals.add({0, 0, sent, size - left});
    if (!is_whole) response.status = 500;  // closes the connection, so that the client detects the cut body
    return true;
}

}  // namespace shared_tensor::server
