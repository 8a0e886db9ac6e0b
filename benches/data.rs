//! Objects that the benchmarks write.

use std::fmt::Write;

/// Size of a pod that the benchmarks send. A pod with two containers that a controller creates has about this
/// size.
pub const POD_BYTES: usize = 3584;

/// Returns a small ConfigMap, to measure the fixed cost of a write.
pub fn config_map(name: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"key":"value","other":"thing"}}}}"#
    )
}

/// Returns a pod of [`POD_BYTES`] bytes. The last environment variable of the pod is padded to reach this
/// size. `slot` is the value of the label `slot`.
pub fn pod(name: &str, slot: usize) -> String {
    let mut text = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"web","app.example.com/component":"frontend","pod-template-hash":"6d4cf56db6","slot":"{slot}"}},"annotations":{{"example.com/config-hash":"8c9d4e1b0a7f63525e4d3c2b1a09f8e7","example.com/scrape":"true"}}}},"spec":{{"#
    );
    text.push_str(r#""volumes":[{"name":"config","configMap":{"name":"web-config","defaultMode":420}},{"name":"cache","emptyDir":{"sizeLimit":"1Gi"}}],"containers":["#);
    for (at, container) in ["web", "sidecar"].into_iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(
            text,
            r#"{comma}{{"name":"{container}","image":"registry.example.com/team/{container}:1.27.3","command":["/bin/{container}","--config=/etc/{container}/config.yaml"],"ports":[{{"name":"http","containerPort":{port},"protocol":"TCP"}}],"resources":{{"limits":{{"cpu":"500m","memory":"256Mi"}},"requests":{{"cpu":"100m","memory":"128Mi"}}}},"volumeMounts":[{{"name":"config","mountPath":"/etc/{container}","readOnly":true}},{{"name":"cache","mountPath":"/var/cache"}}],"readinessProbe":{{"httpGet":{{"path":"/healthz","port":"http","scheme":"HTTP"}},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3}},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent","env":[{{"name":"NODE_NAME","valueFrom":{{"fieldRef":{{"apiVersion":"v1","fieldPath":"spec.nodeName"}}}}}},{{"name":"LOG_LEVEL","value":"info"}}"#,
            port = 8080 + at
        );
        if container == "web" {
            text.push_str("]}");
        }
    }
    const TAIL: &str = r#""}]}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","tolerations":[{"key":"example.com/dedicated","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"nodeSelector":{"example.com/pool":"general"}}}"#;
    text.push_str(r#",{"name":"PADDING","value":""#);
    let padding = POD_BYTES.saturating_sub(text.len() + TAIL.len());
    text.extend(std::iter::repeat_n('x', padding));
    text.push_str(TAIL);
    text
}
