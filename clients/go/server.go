// Package apitest starts a cluster-apiserver for each test of a controller, and controls its test features.
//
//	func TestController(t *testing.T) {
//		server := apitest.Start(t)
//		config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
//		...
//		server.AddFault(ctx, apitest.Fault{Match: apitest.Match{Verbs: []string{"update"}}, Count: 3,
//			Error: &apitest.Error{Code: 409}})
//		server.Advance(ctx, time.Hour)
//	}
//
// The server is the program cluster-apiserver. The environment variable CLUSTER_APISERVER has the path of the program;
// without the variable, the program must be in the search path. The server listens on a free port of 127.0.0.1, and has
// its store in a temporary directory. The package uses only the standard library.
package apitest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// patience is the maximum time of a start.
const patience = 30 * time.Second

// Settings are the settings of a server to start. The zero value has the defaults.
type Settings struct {
	// Program is the path of the program. Default: the path in the environment variable CLUSTER_APISERVER, or else
	// cluster-apiserver in the search path.
	Program string
	// Naming is the naming profile. Default: kubernetes.
	Naming string
	// Flags are further flags of the server.
	Flags []string
	// KeepDirectory keeps the directory after Stop, so that the store and the log can be examined.
	KeepDirectory bool
}

// Server is a server process that starts with an empty store.
type Server struct {
	// URL is the address of the server, https://127.0.0.1:port.
	URL string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// Directory is the directory of the server. It has the file log and the data directory data.
	Directory string
	// TLS has the client certificate of the administrator and the CA of the server.
	TLS *tls.Config

	client  *http.Client
	process *exec.Cmd
	ended   chan struct{}
	keep    bool
}

// T is the part of testing.T and testing.B that Start uses.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Start starts a server with default settings, and stops the server at the end of the test. If the start fails, the
// test fails.
func Start(t T) *Server {
	t.Helper()
	return StartWith(t, Settings{})
}

// StartWith starts a server, and stops the server at the end of the test. If the start fails, the test fails.
func StartWith(t T, settings Settings) *Server {
	t.Helper()
	server, err := New(settings)
	if err != nil {
		t.Fatalf("%v", err)
		return nil
	}
	t.Cleanup(func() { _ = server.Stop() })
	return server
}

// New starts a server, and waits until the server is ready. The caller must stop the server.
func New(settings Settings) (*Server, error) {
	directory, err := os.MkdirTemp("", "cluster-apiserver-")
	if err != nil {
		return nil, err
	}
	server := &Server{Directory: directory, ended: make(chan struct{}), keep: settings.KeepDirectory}
	if err := server.launch(settings); err != nil {
		_ = server.Stop()
		return nil, err
	}
	return server, nil
}

func (s *Server) launch(settings Settings) error {
	program := settings.Program
	if program == "" {
		program = os.Getenv("CLUSTER_APISERVER")
	}
	if program == "" {
		program = "cluster-apiserver"
	}
	naming := settings.Naming
	if naming == "" {
		naming = "kubernetes"
	}
	data, socket := filepath.Join(s.Directory, "data"), filepath.Join(s.Directory, "ready")
	// The server sends a message when it is ready, as to systemd, so polling is not necessary.
	ready, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer ready.Close()
	log, err := os.Create(filepath.Join(s.Directory, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	flags := []string{
		"--data-dir=" + data, "--naming=" + naming, "--secure-port=free", "--durability=relaxed", "--testing", "--exit-with-parent",
	}
	command := exec.Command(program, append(flags, settings.Flags...)...)
	command.Env = append(os.Environ(), "NOTIFY_SOCKET="+socket)
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w; set CLUSTER_APISERVER to the path of the program cluster-apiserver", program, err)
	}
	s.process = command
	go func() {
		_ = command.Wait()
		close(s.ended)
	}()
	if err := s.untilReady(ready); err != nil {
		return fmt.Errorf("the server %w; its log:\n%s", err, s.Log())
	}
	s.Kubeconfig = filepath.Join(data, "admin.kubeconfig")
	return s.connect()
}

func (s *Server) untilReady(ready *net.UnixConn) error {
	answers := make(chan bool, 1)
	_ = ready.SetReadDeadline(time.Now().Add(patience))
	go func() {
		message := make([]byte, 256)
		for {
			length, err := ready.Read(message)
			if err != nil || strings.HasPrefix(string(message[:length]), "READY=1") {
				answers <- err == nil
				return
			}
		}
	}()
	select {
	case <-s.ended:
		return fmt.Errorf("ended with %v", s.process.ProcessState)
	case isReady := <-answers:
		if !isReady {
			return fmt.Errorf("was not ready after %v", patience)
		}
		return nil
	}
}

// connect reads the address and the credentials from the kubeconfig. The server writes one member per line, so this
// function needs no YAML parser.
func (s *Server) connect() error {
	text, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		return err
	}
	members := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		name, value, found := strings.Cut(strings.TrimLeft(line, "- "), ":")
		if found {
			members[strings.Trim(name, `"`)] = strings.Trim(strings.TrimSuffix(strings.TrimSpace(value), ","), `"`)
		}
	}
	decoded := func(name string) []byte {
		bytes, decodeErr := base64.StdEncoding.DecodeString(members[name])
		if decodeErr != nil || len(bytes) == 0 {
			err = errors.Join(err, fmt.Errorf("%s has no %s", s.Kubeconfig, name))
		}
		return bytes
	}
	authority := decoded("certificate-authority-data")
	certificate, key := decoded("client-certificate-data"), decoded("client-key-data")
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return fmt.Errorf("%s has no certificate of an authority", s.Kubeconfig)
	}
	s.URL = members["server"]
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: s.TLS.Clone()}}
	return nil
}

// Log returns the log of the server so far.
func (s *Server) Log() string {
	text, _ := os.ReadFile(filepath.Join(s.Directory, "log"))
	return string(text)
}

// Pid returns the id of the server process.
func (s *Server) Pid() int {
	return s.process.Process.Pid
}

// Stop kills the process and removes its directory.
func (s *Server) Stop() error {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	if s.process != nil {
		// Ignore an error, because the process may already have ended.
		_ = s.process.Process.Signal(syscall.SIGKILL)
		<-s.ended
	}
	if s.keep {
		return nil
	}
	return os.RemoveAll(s.Directory)
}
