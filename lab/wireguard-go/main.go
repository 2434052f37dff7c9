// A WireGuard tunnel by wireguard-go with one peer, for the adapter of mpip-lab. It needs no wg(8)
// and no socket outside its network namespace.
//
//	wireguard-go keys DIRECTORY NAME…        makes DIRECTORY/NAME.key and DIRECTORY/NAME.pub
//	wireguard-go run DEVICE MTU KEY-FILE PEER-PUB-FILE ALLOWED PORT [ENDPOINT]
//
// run makes the device and runs until it is ended. It prints "ready" when the device exists.
package main

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
)

func main() {
	if err := command(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "wireguard-go:", err)
		os.Exit(1)
	}
}

func command(arguments []string) error {
	switch {
	case len(arguments) > 2 && arguments[0] == "keys":
		return keys(arguments[1], arguments[2:])
	case len(arguments) >= 7 && len(arguments) <= 8 && arguments[0] == "run":
		return run(arguments[1], arguments[2], arguments[3:])
	}
	return errors.New("expected keys or run with their arguments; the source has them")
}

// Keys are files with hexadecimal digits.
func keys(directory string, names []string) error {
	for _, name := range names {
		key, err := ecdh.X25519().GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		base := filepath.Join(directory, name)
		private := []byte(hex.EncodeToString(key.Bytes()))
		public := []byte(hex.EncodeToString(key.PublicKey().Bytes()))
		if err := os.WriteFile(base+".key", private, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(base+".pub", public, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func run(name, mtu string, rest []string) error {
	bytes, err := strconv.Atoi(mtu)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(rest[0])
	if err != nil {
		return err
	}
	peer, err := os.ReadFile(rest[1])
	if err != nil {
		return err
	}
	lines := []string{
		"private_key=" + string(key),
		"listen_port=" + rest[3],
		"public_key=" + string(peer),
		"allowed_ip=" + rest[2],
	}
	if len(rest) > 4 {
		lines = append(lines, "endpoint="+rest[4])
	}
	tunnel, err := tun.CreateTUN(name, bytes)
	if err != nil {
		return err
	}
	logger := device.NewLogger(device.LogLevelError, name+": ")
	wireguard := device.NewDevice(tunnel, conn.NewDefaultBind(), logger)
	if err := wireguard.IpcSet(strings.Join(lines, "\n") + "\n"); err != nil {
		return err
	}
	if err := wireguard.Up(); err != nil {
		return err
	}
	fmt.Println("ready")
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-end:
	case <-wireguard.Wait():
	}
	wireguard.Close()
	return nil
}
