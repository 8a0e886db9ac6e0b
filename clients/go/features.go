package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Match selects requests. An empty list matches everything. In a text, * matches any characters.
type Match struct {
	// Verbs as in roles: get, list, watch, create, update, patch, delete, deletecollection.
	Verbs []string `json:"verbs,omitempty"`
	// Groups are API groups. The core group is the empty text.
	Groups []string `json:"groups,omitempty"`
	// Resources are plural names. A subresource follows after a slash: pods, pods/status.
	Resources []string `json:"resources,omitempty"`
	// Namespaces of the objects.
	Namespaces []string `json:"namespaces,omitempty"`
	// Names of the objects, as in the path.
	Names []string `json:"names,omitempty"`
	// Paths of the URL. A request that is not for a resource matches only a Match with paths.
	Paths []string `json:"paths,omitempty"`
	// Users are the names of the users who send the requests.
	Users []string `json:"users,omitempty"`
	// UserAgents are values of the header User-Agent.
	UserAgents []string `json:"userAgents,omitempty"`
}

// Error is an error response.
type Error struct {
	// Code is the HTTP status code, 400 to 599.
	Code int `json:"code"`
	// Reason of the Status. Default: the usual reason of the code.
	Reason string `json:"reason,omitempty"`
	// Message of the Status.
	Message string `json:"message,omitempty"`
	// RetryAfterSeconds is the value of the header Retry-After. 0 means that the response does not have this
	// header.
	RetryAfterSeconds int `json:"retryAfterSeconds,omitempty"`
}

// WatchFault disturbs a watch.
type WatchFault struct {
	// Effect is stall, close, break or expire.
	Effect string `json:"effect"`
	// AfterChanges is the number of changes that the watch sends before the disturbance.
	AfterChanges uint64 `json:"afterChanges,omitempty"`
	// For is the duration of a stall, in Go's notation. Default: until the effect resume.
	For string `json:"for,omitempty"`
}

// Fault is a rule that makes requests fail, delays them, or lets them read an old state. A fault has exactly one of
// Error, Close, StaleAt and Watch, or only a delay.
type Fault struct {
	// Match selects the requests to which the rule applies.
	Match Match
	// Skip is the number of matching requests that pass before the rule applies.
	Skip uint64
	// Count is the number of matching requests to which the rule applies. 0 means all.
	Count uint64
	// Delay is the time that a matching request waits.
	Delay time.Duration
	// Error is the response to a matching request.
	Error *Error
	// Close breaks the connection. The value is before or after: the request is not served, or it is served
	// first.
	Close string
	// StaleAt is the earlier point whose state a read returns: a resource version, a time, or a negative
	// duration.
	StaleAt string
	// Watch disturbs the watch that a matching request begins.
	Watch *WatchFault
}

// MarshalJSON encodes the rule in the format of the server.
func (f Fault) MarshalJSON() ([]byte, error) {
	rule := map[string]any{"match": f.Match, "skip": f.Skip}
	if f.Count > 0 {
		rule["count"] = f.Count
	}
	if f.Delay > 0 {
		rule["delay"] = f.Delay.String()
	}
	if f.Error != nil {
		rule["error"] = f.Error
	}
	if f.Close != "" {
		rule["close"] = f.Close
	}
	if f.StaleAt != "" {
		rule["staleAt"] = f.StaleAt
	}
	if f.Watch != nil {
		rule["watch"] = f.Watch
	}
	return json.Marshal(rule)
}

// Clock is the time of the server.
type Clock struct {
	// Time of the server.
	Time time.Time `json:"time"`
	// Frozen is true if the time is frozen.
	Frozen bool `json:"frozen"`
	// Ahead is the duration by which the time is ahead of the clock of the machine, in Go's notation.
	Ahead string `json:"ahead"`
}

// Request is a request in the record.
type Request struct {
	Sequence    uint64          `json:"sequence"`
	Verb        string          `json:"verb"`
	Group       string          `json:"group"`
	Version     string          `json:"version"`
	Resource    string          `json:"resource"`
	Subresource string          `json:"subresource"`
	Namespace   string          `json:"namespace"`
	Name        string          `json:"name"`
	URI         string          `json:"uri"`
	User        string          `json:"user"`
	UserAgent   string          `json:"userAgent"`
	Code        int             `json:"code"`
	Fault       uint64          `json:"fault"`
	Body        json.RawMessage `json:"body"`
}

// RefusedError is an error response of the server.
type RefusedError struct {
	// Call is the method and the path of the request.
	Call string
	// Code is the HTTP status code.
	Code int
	// Text is the body of the response.
	Text string
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s: status %d: %s", e.Call, e.Code, e.Text)
}

// Clock returns the time of the server.
func (s *Server) Clock(ctx context.Context) (Clock, error) {
	return call[Clock](ctx, s, http.MethodGet, "/testing/clock", nil)
}

// SetTime sets the time of the server.
func (s *Server) SetTime(ctx context.Context, to time.Time) (Clock, error) {
	return s.change(ctx, map[string]any{"time": to.UTC().Format(time.RFC3339Nano)})
}

// Advance moves the time of the server forward.
func (s *Server) Advance(ctx context.Context, by time.Duration) (Clock, error) {
	return s.change(ctx, map[string]any{"advance": by.String()})
}

// Freeze freezes the time of the server, or lets it run again.
func (s *Server) Freeze(ctx context.Context, frozen bool) (Clock, error) {
	return s.change(ctx, map[string]any{"frozen": frozen})
}

// ResetClock makes the time of the server follow the clock of the machine again.
func (s *Server) ResetClock(ctx context.Context) (Clock, error) {
	return call[Clock](ctx, s, http.MethodDelete, "/testing/clock", nil)
}

func (s *Server) change(ctx context.Context, change map[string]any) (Clock, error) {
	return call[Clock](ctx, s, http.MethodPut, "/testing/clock", change)
}

// AddFault adds a rule, and returns its number.
func (s *Server) AddFault(ctx context.Context, fault Fault) (uint64, error) {
	added, err := call[struct{ ID uint64 }](ctx, s, http.MethodPost, "/testing/faults", fault)
	return added.ID, err
}

// RemoveFault removes the rule with this number.
func (s *Server) RemoveFault(ctx context.Context, id uint64) error {
	_, err := call[any](ctx, s, http.MethodDelete, fmt.Sprintf("/testing/faults/%d", id), nil)
	return err
}

// ClearFaults removes all rules.
func (s *Server) ClearFaults(ctx context.Context) error {
	_, err := call[any](ctx, s, http.MethodDelete, "/testing/faults", nil)
	return err
}

// DisturbWatches disturbs all open watches that match, and returns the number of these watches. The effect is stall,
// resume, close, break or expire.
func (s *Server) DisturbWatches(ctx context.Context, match Match, effect string) (int, error) {
	order := map[string]any{"match": match, "effect": effect}
	answer, err := call[struct{ Disturbed int }](ctx, s, http.MethodPost, "/testing/watches", order)
	return answer.Disturbed, err
}

type part struct {
	Items []Request
	Mark  uint64
}

// Mark returns the current position in the record of requests.
func (s *Server) Mark(ctx context.Context) (uint64, error) {
	answer, err := call[part](ctx, s, http.MethodGet, "/testing/requests", nil)
	return answer.Mark, err
}

// RequestsSince returns the recorded requests after a mark, with their bodies.
func (s *Server) RequestsSince(ctx context.Context, mark uint64) ([]Request, error) {
	var requests []Request
	for {
		found, err := call[part](ctx, s, http.MethodGet, fmt.Sprintf("/testing/requests?bodies=true&since=%d", mark), nil)
		if err != nil || len(found.Items) == 0 {
			return requests, err
		}
		requests, mark = append(requests, found.Items...), found.Mark
	}
}

// Quiesce waits until no object was written for the time quiet and every watch has sent all events. It returns the
// newest resource version.
func (s *Server) Quiesce(ctx context.Context, quiet, timeout time.Duration) (string, error) {
	wanted := map[string]any{"for": quiet.String(), "timeout": timeout.String()}
	answer, err := call[struct{ ResourceVersion string }](ctx, s, http.MethodPost, "/testing/quiescence", wanted)
	return answer.ResourceVersion, err
}

// Save saves a snapshot of all objects under a name.
func (s *Server) Save(ctx context.Context, name string) error {
	_, err := call[any](ctx, s, http.MethodPut, "/testing/snapshots/"+url.PathEscape(name), nil)
	return err
}

// Restore restores a snapshot, and returns the number of objects that were written or deleted. Watches end with 410, so
// that informers list again.
func (s *Server) Restore(ctx context.Context, name string) (int, error) {
	path := "/testing/snapshots/" + url.PathEscape(name) + "/restore"
	answer, err := call[struct{ Writes int }](ctx, s, http.MethodPost, path, nil)
	return answer.Writes, err
}

func call[A any](ctx context.Context, s *Server, method, path string, body any) (answer A, err error) {
	var content io.Reader = http.NoBody
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return answer, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, s.URL+path, content)
	if err != nil {
		return answer, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return answer, err
	}
	if response.StatusCode != http.StatusOK {
		return answer, &RefusedError{Call: method + " " + path, Code: response.StatusCode, Text: string(text)}
	}
	return answer, json.Unmarshal(text, &answer)
}
