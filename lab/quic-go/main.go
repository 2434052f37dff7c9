// Bulk QUIC by quic-go, for scenarios of mpip-lab with implementation = "quic-go". lab/src/quic.rs
// describes what client and server say to each other.
//
//	quic-go serve AT
//	quic-go transfer FROM TO download|upload SECONDS
//
// The client prints the receiver's result, the server what it sent, both as JSON. quic-go has one
// congestion control, NewReno. If QLOGDIR is set, both write qlog files into that directory.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
)

const (
	// Flow control windows in bytes, as in lab/src/quic.rs.
	window = 16 << 20
	chunk  = 64 * 1024
	// Longest time for the handshake, and for the last answer.
	patience = 8 * time.Second
	// Intervals of the goodput over time.
	interval = 100 * time.Millisecond
	// Pauses in the first second belong to the start.
	start = time.Second
	// Shortest pause that is noted, and how many are.
	notedPause = 20 * time.Millisecond
	mostPauses = 1000
)

// Fields of FlowResult (lab/src/flow.rs).
type flowResult struct {
	Name           string       `json:"name"`
	Plain          bool         `json:"plain"`
	GoodputBps     float64      `json:"goodput_bps"`
	IntervalsBps   []float64    `json:"intervals_bps"`
	Retransmits    uint64       `json:"retransmits"`
	LongestPauseMs *float64     `json:"longest_pause_ms"`
	Pauses         [][2]float64 `json:"pauses"`
	RttMs          *float64     `json:"rtt_ms"`
	Loss           *float64     `json:"loss"`
	JitterMs       *float64     `json:"jitter_ms"`
	Verified       *bool        `json:"verified"`
	Error          *string      `json:"error"`
}

// Fields of Sent (lab/src/quic.rs).
type sent struct {
	Packets uint64 `json:"packets"`
	Lost    uint64 `json:"lost"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "quic-go:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "serve":
		result, err := serve(arguments[1])
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	case len(arguments) == 5 && arguments[0] == "transfer":
		seconds, err := strconv.ParseFloat(arguments[4], 64)
		if err != nil {
			return err
		}
		duration := time.Duration(seconds * float64(time.Second))
		result, err := transfer(arguments[1], arguments[2], arguments[3] == "download", duration)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(result)
	}
	return errors.New("usage: quic-go serve AT | transfer FROM TO download|upload SECONDS")
}

func config() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           patience,
		InitialStreamReceiveWindow:     window,
		MaxStreamReceiveWindow:         window,
		InitialConnectionReceiveWindow: window,
		MaxConnectionReceiveWindow:     window,
		Tracer:                         qlog.DefaultConnectionTracer,
	}
}

func transport(at string) (*quic.Transport, error) {
	address, err := net.ResolveUDPAddr("udp", at)
	if err != nil {
		return nil, err
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: socket}, nil
}

func serve(at string) (*sent, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	transport, err := transport(at)
	if err != nil {
		return nil, err
	}
	listener, err := transport.Listen(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		NextProtos:   []string{"mpip-lab"},
	}, config())
	if err != nil {
		return nil, err
	}
	connection, err := listener.Accept(context.Background())
	if err != nil {
		return nil, err
	}
	stream, err := connection.AcceptStream(context.Background())
	if err != nil {
		return nil, err
	}
	var head [9]byte
	if _, err := io.ReadFull(stream, head[:]); err != nil {
		return nil, err
	}
	if head[0] == 1 {
		if err := sendUntilStopped(stream); err != nil {
			return nil, err
		}
	} else {
		duration := time.Duration(binary.LittleEndian.Uint64(head[1:])) * time.Millisecond
		result := receive(stream, duration)
		stream.CancelRead(0)
		if err := json.NewEncoder(stream).Encode(result); err != nil {
			return nil, err
		}
		stream.Close()
	}
	<-connection.Context().Done()
	return sentBy(connection), nil
}

func sentBy(connection *quic.Conn) *sent {
	stats := connection.ConnectionStats()
	return &sent{Packets: stats.PacketsSent, Lost: stats.PacketsLost}
}

func transfer(from, to string, download bool, duration time.Duration) (*flowResult, error) {
	transport, err := transport(from)
	if err != nil {
		return nil, err
	}
	address, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		return nil, err
	}
	// The server's key is made when it starts. All traffic is the lab's.
	trust := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"mpip-lab"}}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connection, err := transport.Dial(ctx, address, trust, config())
	if err != nil {
		return nil, err
	}
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return nil, err
	}
	var head [9]byte
	if download {
		head[0] = 1
	}
	binary.LittleEndian.PutUint64(head[1:], uint64(duration.Milliseconds()))
	if _, err := stream.Write(head[:]); err != nil {
		return nil, err
	}
	var result *flowResult
	if download {
		result = receive(stream, duration)
	} else {
		stream.SetWriteDeadline(time.Now().Add(duration + patience))
		if err := sendUntilStopped(stream); err != nil {
			return nil, err
		}
		stream.SetReadDeadline(time.Now().Add(patience))
		if err := json.NewDecoder(stream).Decode(&result); err != nil {
			return nil, err
		}
		result.Retransmits = sentBy(connection).Lost
	}
	connection.CloseWithError(0, "done")
	return result, transport.Close()
}

// Sends until the receiver stops the stream, or closes the connection.
func sendUntilStopped(stream *quic.Stream) error {
	data := make([]byte, chunk)
	for {
		_, err := stream.Write(data)
		var stopped *quic.StreamError
		var closed *quic.ApplicationError
		if errors.As(err, &stopped) || errors.As(err, &closed) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Receives for the duration.
func receive(stream *quic.Stream, duration time.Duration) *flowResult {
	begin := time.Now()
	stream.SetReadDeadline(begin.Add(duration))
	result := flowResult{IntervalsBps: make([]float64, duration/interval), Pauses: [][2]float64{}}
	var bytes int
	var first, last time.Time
	var longest time.Duration
	data := make([]byte, chunk)
	for {
		length, err := stream.Read(data)
		now := time.Now()
		if length > 0 {
			if first.IsZero() {
				first = now
			}
			since := now.Sub(first)
			if since >= start {
				// Of a pause that began in the first second, only the part after it counts.
				pause := now.Sub(latest(last, first.Add(start)))
				longest = max(longest, pause)
				if pause >= notedPause && len(result.Pauses) < mostPauses {
					milliseconds := float64(pause.Microseconds()) / 1e3
					result.Pauses = append(result.Pauses, [2]float64{since.Seconds(), milliseconds})
				}
			}
			last = now
			bytes += length
			if index := int(since / interval); index < len(result.IntervalsBps) {
				result.IntervalsBps[index] += float64(length) * 8 / interval.Seconds()
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			message := err.Error()
			result.Error = &message
			break
		}
	}
	result.GoodputBps = float64(bytes) * 8 / duration.Seconds()
	milliseconds := float64(longest.Microseconds()) / 1e3
	result.LongestPauseMs = &milliseconds
	return &result
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
