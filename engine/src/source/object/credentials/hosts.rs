//! Host names of the AWS services in a region, for each partition, including the FIPS and dual-stack variants.
//!
//! ```text
//!   s3           eu-central-1                s3.eu-central-1.amazonaws.com
//!   s3           eu-central-1, dual stack    s3.dualstack.eu-central-1.amazonaws.com
//!   s3           us-east-2, FIPS             s3-fips.us-east-2.amazonaws.com
//!   sts          cn-north-1                  sts.cn-north-1.amazonaws.com.cn
//!   portal.sso   us-east-2, dual stack       portal.sso.us-east-2.api.aws
//! ```
//! Source: AWS general reference, service endpoints; AWS SDKs and Tools reference guide, dual-stack and FIPS endpoints.

use super::profile::ProfileInUse;
use crate::source::object::settings::ObjectSettings;

/// For each partition: how its regions begin, and the domains of its services without and with dual stack.
const PARTITIONS: [[&str; 3]; 7] = [
    ["cn-", "amazonaws.com.cn", "api.amazonwebservices.com.cn"],
    ["us-isob-", "sc2s.sgov.gov", "api.aws.scloud"],
    ["us-isof-", "csp.hci.ic.gov", "api.aws.hci.ic.gov"],
    ["us-iso-", "c2s.ic.gov", "api.aws.ic.gov"],
    ["eu-isoe-", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk"],
    ["eusc-", "amazonaws.eu", "api.amazonwebservices.eu"],
    ["", "amazonaws.com", "api.aws"],
];

pub struct Hosts<'a> {
    pub region: &'a str,
    pub is_fips: bool,
    pub is_dual_stack: bool,
}

impl<'a> Hosts<'a> {
    pub fn of(settings: &ObjectSettings, profile: &ProfileInUse, region: &'a str) -> Hosts<'a> {
        let is_on = |variable, key| profile.is_on(settings, variable, key);
        Hosts {
            region,
            is_fips: is_on("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint"),
            is_dual_stack: is_on("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint"),
        }
    }

    fn partition(&self) -> [&'static str; 3] {
        let mut all = PARTITIONS.into_iter();
        let found = all.find(|[begin, ..]| self.region.starts_with(begin));
        found.unwrap_or(PARTITIONS[6])
    }

    /// Returns the domain of the AWS partition of a region, or `None` for the public partition.
    pub fn other_domain(&self) -> Option<&'static str> {
        let [begin, domain, _] = self.partition();
        (!begin.is_empty()).then_some(domain)
    }

    /// Returns the host name of a service: `s3`, `sts`, `portal.sso` or `oidc`.
    pub fn host(&self, service: &str) -> String {
        let [_, domain, dual_domain] = self.partition();
        let is_s3 = service == "s3";
        // The usual hosts of GovCloud are FIPS hosts.
        let is_fips = self.is_fips && (is_s3 || !self.region.starts_with("us-gov-"));
        let fips = if is_fips { "-fips" } else { "" };
        let (dual, domain) = match (self.is_dual_stack, is_s3) {
            (false, _) => ("", domain),
            (true, true) => (".dualstack", domain),
            (true, false) => ("", dual_domain),
        };
        format!("{service}{fips}{dual}.{}.{domain}", self.region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service, a region, whether FIPS and dual stack are asked for, and the host.
    const ROWS: &str = "\
        s3 eu-1 - s3.eu-1.amazonaws.com
        s3 eu-1 dual s3.dualstack.eu-1.amazonaws.com
        s3 us-2 fips s3-fips.us-2.amazonaws.com
        s3 us-2 fips,dual s3-fips.dualstack.us-2.amazonaws.com
        s3 cn-n-1 - s3.cn-n-1.amazonaws.com.cn
        s3 cn-n-1 dual s3.dualstack.cn-n-1.amazonaws.com.cn
        s3 us-iso-e-1 - s3.us-iso-e-1.c2s.ic.gov
        s3 us-isob-e-1 - s3.us-isob-e-1.sc2s.sgov.gov
        s3 eusc-de-1 - s3.eusc-de-1.amazonaws.eu
        s3 us-gov-w-1 fips s3-fips.us-gov-w-1.amazonaws.com
        sts us-gov-w-1 fips sts.us-gov-w-1.amazonaws.com
        sts us-2 fips,dual sts-fips.us-2.api.aws
        oidc cn-n-1 - oidc.cn-n-1.amazonaws.com.cn
        portal.sso us-2 dual portal.sso.us-2.api.aws";

    #[test]
    fn each_partition_has_its_domain() {
        for row in ROWS.lines() {
            let [service, region, asked, wanted] = row.split_whitespace().collect::<Vec<_>>()[..]
            else {
                panic!("{row}")
            };
            let hosts = Hosts {
                region,
                is_fips: asked.contains("fips"),
                is_dual_stack: asked.contains("dual"),
            };
            assert_eq!(hosts.host(service), wanted);
        }
    }
}
